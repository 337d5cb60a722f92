package settings_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/gate/settings"
	"sallyport/sniproxy/resolve"
)

func TestParse(t *testing.T) {
	s, err := settings.Parse([]string{"SALLYPORT_RESOLVERS=192.0.2.1, 192.0.2.2:5353,[2001:db8::1]:53,2001:db8::2," +
		"tcp://192.0.2.3,tls://192.0.2.4#dns.example,tls://[2001:db8::4]:8853", "PATH=/bin"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Allowlist != "/etc/sallyport/allowlist.yaml" || s.ControlSocket != "/run/sallyport/control.sock" ||
		s.CacheNames != 1024 || s.CacheMin != 5*time.Second || s.CacheMax != 5*time.Minute {
		t.Errorf("defaults %+v", s)
	}
	r, err := s.Resolver()
	if err != nil {
		t.Fatal(err)
	}
	const want = "[udp://192.0.2.1:53 udp://192.0.2.2:5353 udp://[2001:db8::1]:53 udp://[2001:db8::2]:53 " +
		"tcp://192.0.2.3:53 tls://192.0.2.4:853#dns.example tls://[2001:db8::4]:8853]"
	if got := fmt.Sprint(r.Servers); got != want {
		t.Errorf("resolvers %s, want %s", got, want)
	}

	s, err = settings.Parse([]string{"SALLYPORT_ALLOWLIST=/a", "SALLYPORT_CONTROL_SOCKET=/b"})
	if err != nil || s.Allowlist != "/a" || s.ControlSocket != "/b" || len(s.Resolvers) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	empty, err := settings.Parse([]string{"SALLYPORT_CACHE_NAMES=", "SALLYPORT_RESOLVERS=", "SALLYPORT_METRICS_LISTEN=", "SALLYPORT_DECISION_LOG_SIZE=", "SALLYPORT_ALLOWLIST="})
	defaults, _ := settings.Parse(nil)
	if err != nil || fmt.Sprint(empty) != fmt.Sprint(defaults) {
		t.Errorf("variables without a value give %+v, %v", empty, err)
	}
	for _, bad := range []string{"dns.example", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:x", "192.0.2.300", "192.0.2.1,,192.0.2.2",
		"https://192.0.2.1", "tls://dns.example", "tls://192.0.2.1#", "tls://192.0.2.1#a b", "192.0.2.1#dns.example", "tcp://192.0.2.1:0"} {
		if s, err := settings.Parse([]string{"SALLYPORT_RESOLVERS=" + bad}); err == nil {
			t.Errorf("%q gives %v", bad, s.Resolvers)
		}
	}
	s, err = settings.Parse([]string{"SALLYPORT_REFUSED_PREFIXES=2001:db8:64::/96, 192.0.2.0/24"})
	if err != nil || fmt.Sprint(s.Refused()) != "[2001:db8:64::/96 192.0.2.0/24]" {
		t.Errorf("refused %v, %v", s.Refused(), err)
	}
	for bad, right := range map[string]string{"2001:db8:64::": "is not a network", "192.0.2.1/24": "write 192.0.2.0/24",
		"::ffff:192.0.2.0/120": "is not a network", "::/0": "every address", "192.0.2.0/24,": "is not a network"} {
		_, err := settings.Parse([]string{"SALLYPORT_REFUSED_PREFIXES=" + bad})
		if err == nil || !strings.Contains(err.Error(), right) || !strings.Contains(err.Error(), "SALLYPORT_REFUSED_PREFIXES") {
			t.Errorf("%q gives %v, want %q", bad, err, right)
		}
	}
	for _, bad := range []string{"NAMES=-1", "MIN=-1s", "MAX=4s", "MIN=soon"} {
		if s, err := settings.Parse([]string{"SALLYPORT_CACHE_" + bad}); err == nil {
			t.Errorf("%s gives %+v", bad, s)
		}
	}
	for _, ca := range []string{filepath.Join(t.TempDir(), "absent.pem"), os.DevNull} {
		s := settings.Settings{Resolvers: []settings.DNSServer{settings.DNSServer(resolve.UDPServer(netip.MustParseAddrPort("192.0.2.1:53")))}, ResolverCA: ca}
		if _, err := s.Authorities(); err == nil {
			t.Errorf("authorities from %s", ca)
		}
	}
}
