package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/gate/control"
	"sallyport/sniproxy/resolve"
)

func TestParseSettings(t *testing.T) {
	s, err := ParseSettings([]string{"SALLYPORT_RESOLVERS=192.0.2.1, 192.0.2.2:5353,[2001:db8::1]:53,2001:db8::2," +
		"tcp://192.0.2.3,tls://192.0.2.4#dns.example,tls://[2001:db8::4]:8853", "PATH=/bin"})
	if err != nil {
		t.Fatal(err)
	}
	if s.Allowlist != "/etc/sallyport/allowlist.yaml" || s.ControlSocket != "/run/sallyport/control.sock" ||
		s.cache() != (CacheSize{Names: 1024, Least: 5 * time.Second, Most: 5 * time.Minute}) {
		t.Errorf("defaults %+v", s)
	}
	r, err := s.resolver()
	if err != nil {
		t.Fatal(err)
	}
	const want = "[udp://192.0.2.1:53 udp://192.0.2.2:5353 udp://[2001:db8::1]:53 udp://[2001:db8::2]:53 " +
		"tcp://192.0.2.3:53 tls://192.0.2.4:853#dns.example tls://[2001:db8::4]:8853]"
	if got := fmt.Sprint(r.Servers); got != want {
		t.Errorf("resolvers %s, want %s", got, want)
	}

	s, err = ParseSettings([]string{"SALLYPORT_ALLOWLIST=/a", "SALLYPORT_CONTROL_SOCKET=/b"})
	if err != nil || s.Allowlist != "/a" || s.ControlSocket != "/b" || len(s.Resolvers) != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	empty, err := ParseSettings([]string{"SALLYPORT_CACHE_NAMES=", "SALLYPORT_RESOLVERS=", "SALLYPORT_METRICS_LISTEN=", "SALLYPORT_DECISION_LOG_SIZE=", "SALLYPORT_ALLOWLIST="})
	defaults, _ := ParseSettings(nil)
	if err != nil || fmt.Sprint(empty) != fmt.Sprint(defaults) {
		t.Errorf("variables without a value give %+v, %v", empty, err)
	}
	for _, bad := range []string{"dns.example", "192.0.2.1:", "192.0.2.1:0", "192.0.2.1:x", "192.0.2.300", "192.0.2.1,,192.0.2.2",
		"https://192.0.2.1", "tls://dns.example", "tls://192.0.2.1#", "tls://192.0.2.1#a b", "192.0.2.1#dns.example", "tcp://192.0.2.1:0"} {
		if s, err := ParseSettings([]string{"SALLYPORT_RESOLVERS=" + bad}); err == nil {
			t.Errorf("%q gives %v", bad, s.Resolvers)
		}
	}
	s, err = ParseSettings([]string{"SALLYPORT_REFUSED_PREFIXES=2001:db8:64::/96, 192.0.2.0/24"})
	if err != nil || fmt.Sprint(s.Refused()) != "[2001:db8:64::/96 192.0.2.0/24]" {
		t.Errorf("refused %v, %v", s.Refused(), err)
	}
	for bad, right := range map[string]string{"2001:db8:64::": "is not a network", "192.0.2.1/24": "write 192.0.2.0/24",
		"::ffff:192.0.2.0/120": "is not a network", "::/0": "every address", "192.0.2.0/24,": "is not a network"} {
		_, err := ParseSettings([]string{"SALLYPORT_REFUSED_PREFIXES=" + bad})
		if err == nil || !strings.Contains(err.Error(), right) || !strings.Contains(err.Error(), "SALLYPORT_REFUSED_PREFIXES") {
			t.Errorf("%q gives %v, want %q", bad, err, right)
		}
	}
	for _, bad := range []string{"NAMES=-1", "MIN=-1s", "MAX=4s", "MIN=soon"} {
		if s, err := ParseSettings([]string{"SALLYPORT_CACHE_" + bad}); err == nil {
			t.Errorf("%s gives %+v", bad, s.cache())
		}
	}
	for _, ca := range []string{filepath.Join(t.TempDir(), "absent.pem"), os.DevNull} {
		s := Settings{Resolvers: []dnsServer{dnsServer(resolve.UDPServer(netip.MustParseAddrPort("192.0.2.1:53")))}, ResolverCA: ca}
		if _, err := s.authorities(); err == nil {
			t.Errorf("authorities from %s", ca)
		}
	}
}

// An allowlist that is missing, empty or malformed: an error with file and line,
// and nothing is open.
//
// probe: P1
// oracle: the error with file and line, and the control socket, which is not there; a
// good file starts
func TestRunRefusesAllowlist(t *testing.T) {
	dir := t.TempDir()
	settings := Settings{
		Allowlist: filepath.Join(dir, "allowlist.yaml"), ControlSocket: filepath.Join(dir, "control.sock"),
		Resolvers: []dnsServer{dnsServer(resolve.UDPServer(netip.MustParseAddrPort("192.0.2.1:53")))},
	}
	refused := func(t *testing.T, want string) {
		t.Helper()
		err := Run(t.Context(), settings, "test", slog.New(slog.DiscardHandler), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
		if _, err := os.Lstat(settings.ControlSocket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the control socket: %v", err)
		}
	}
	t.Run("missing", func(t *testing.T) { refused(t, settings.Allowlist+": ") })
	for name, test := range map[string]struct{ text, where string }{
		"empty":       {"", ": "},
		"unknown key": {"version: 1\npolicys: {}\n", ":2:"},
		"syntax":      {"version: 1\npolicies: {strict: {allow: [a.example}\n", ":2:"},
		"wildcard":    {"version: 1\npolicies:\n  strict: {allow: ['*.com']}\n", ":3:"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(settings.Allowlist, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, settings.Allowlist+test.where)
		})
	}

	if err := os.WriteFile(settings.Allowlist, []byte(testAllowlist), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, settings, "test", slog.New(slog.DiscardHandler), io.Discard) }()
	c := control.Client{Socket: settings.ControlSocket}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if h, err := c.Health(t.Context()); err == nil {
			if h.Version != "test" || len(h.Policies) != 3 {
				t.Errorf("control: %+v", h)
			}
			break
		} else if time.Now().After(end) {
			t.Fatalf("control: %v", err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("control: %v", err)
	}
	if _, err := os.Lstat(settings.ControlSocket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// TestListenControl finds all sorts of things in the socket's place.
//
// probe: N8
// oracle: the mode of the socket's file, and files of others that stay as they were
func TestListenControl(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	open := func(t *testing.T) net.Listener {
		t.Helper()
		ln, err := listenControl(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	refused := func(t *testing.T, want string) {
		t.Helper()
		if ln, err := listenControl(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listener %v, error %v; want one with %q", ln, err, want)
		}
	}
	ln := open(t)
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v; want a socket of its owner alone", info.Mode(), err)
	}
	refused(t, "another gate answers")

	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close() // as a gate does that is killed
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	open(t).Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "no socket")
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file: %q, %v", b, err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".moved", path); err != nil {
		t.Fatal(err)
	}
	refused(t, "no socket")
	path = filepath.Join(t.TempDir(), "none", "control.sock")
	refused(t, "no such file or directory")
}

func TestForwardWarning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ip_forward")
	for text, want := range map[string]bool{"0\n": false, "1\n": true, "": true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if w := forwardWarning(path); (w != "") != want {
			t.Errorf("%q: %q", text, w)
		}
	}
	if forwardWarning(path+".none") == "" {
		t.Error("no word about a file that cannot be read")
	}
}
