package resolve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/internal/contain"
	"sallyport/sniproxy/testnet"
)

const testZone = `
both.example.     60 IN A 192.0.2.1
both.example.     60 IN A 192.0.2.2
both.example.     60 IN AAAA 2001:db8::1
four.example.     60 IN A 192.0.2.4
six.example.      60 IN AAAA 2001:db8::6
none.example.     60 IN TXT "no address"
alias.example.    60 IN CNAME Next_1.Example.
next_1.example.   60 IN CNAME both.example.
inside.example.   60 IN CNAME vault.corp.internal.
vault.corp.internal. 60 IN A 192.0.2.66
meta.example.     60 IN CNAME hop.example.
hop.example.      60 IN CNAME Metadata.Google.Internal.
metadata.google.internal. 60 IN A 192.0.2.67
local.example.    60 IN CNAME localhost.
literal.example.  60 IN CNAME 10.0.0.1.
dotted.example.   60 IN CNAME a\.b.example.
loop.example.     60 IN CNAME loop.example.
mixed.example.    60 IN CNAME four.example.
mixed.example.    60 IN A 192.0.2.9
mapped.example.   60 IN AAAA ::ffff:10.0.0.1
big.example.      60 IN A 192.0.2.3
half.example.     60 IN A 192.0.2.7
`

func manyRecords(name string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s 60 IN A 198.51.%d.%d\n", name, i/256, i%256)
	}
	return b.String()
}

// TestResolve asks a real DNS server whose answers are good and bad.
//
// probe: R10
// oracle: the answers of a real DNS server, held against what the resolver makes of
// them
func TestResolve(t *testing.T) {
	zone := testZone + manyRecords("big1000.example.", 1000)
	for i := range 12 {
		zone += fmt.Sprintf("long%d.example. 60 IN CNAME long%d.example.\n", i, i+1)
	}
	zone += "long12.example. 60 IN A 192.0.2.12\n"
	s := testnet.StartDNS(t, zone)
	tests := []struct {
		name    string
		want    string // addresses, or their number
		err     string
		refused bool
	}{
		{"both.example", "192.0.2.1 192.0.2.2 2001:db8::1", "", false},
		{"four.example", "192.0.2.4", "", false},
		{"six.example", "2001:db8::6", "", false},
		{"alias.example", "192.0.2.1 192.0.2.2 2001:db8::1", "", false},
		{"big.example", "192.0.2.3", "", false},
		{"half.example", "192.0.2.7", "", false},
		{"mapped.example", "::ffff:10.0.0.1", "", false}, // for the judge to refuse
		{"none.example", "", "it has no address", false},
		{"absent.example", "", "no such name", false},
		{"servfail.example", "", "SERVFAIL", false},
		{"liar.example", "", "another question", false},
		// probe: R6
		{"inside.example", "", "vault.corp.internal", true},
		{"meta.example", "", "Metadata.Google.Internal", true},
		// probe: R6, R9
		{"local.example", "", "localhost", true},
		// probe: R6
		{"literal.example", "", "10.0.0.1", true},
		{"dotted.example", "", `a\\.b.example`, true},

		{"loop.example", "", "more than 8 CNAMEs", true},
		{"long0.example", "", "more than 8 CNAMEs", true},
		{"long4.example", "192.0.2.12", "", false},
		{"mixed.example", "", "addresses of its own", true},
	}
	r := &Client{Servers: []Server{UDPServer(s.Addr)}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			addrs, err := r.Resolve(t.Context(), testnet.ParseName(t, tt.name))
			if got := strings.Trim(fmt.Sprint(addrs), "[]"); got != tt.want {
				t.Errorf("addresses %q, want %q", got, tt.want)
			}
			var refused *RefusedError
			if (err != nil) != (tt.err != "") || errors.As(err, &refused) != tt.refused ||
				err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q, refused %v", err, tt.err, tt.refused)
			}
		})
	}
	t.Run("1000 answers", func(t *testing.T) {
		addrs, err := r.Resolve(t.Context(), testnet.ParseName(t, "big1000.example"))
		if ok, _ := firewall.JudgeAnswer(firewall.Decision{Verdict: firewall.Allow}, addrs); ok || err != nil {
			t.Errorf("%d addresses, %v", len(addrs), err)
		}
	})
}

// A name is asked for as it is, fully qualified, whatever its parts look like.
//
// probe: R9
// oracle: the questions as the DNS server on the far side got them
func TestResolveAsksTheNameAlone(t *testing.T) {
	aliases := filepath.Join(t.TempDir(), "aliases")
	if err := os.WriteFile(aliases, []byte("absent.example other.example\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"LOCALDOMAIN": "corp.example", "RES_OPTIONS": "ndots:5", "HOSTALIASES": aliases} {
		t.Setenv(name, value) // resolver(5)
	}
	s := testnet.StartDNS(t, testZone)
	r := &Client{Servers: []Server{UDPServer(s.Addr)}}
	_, _ = r.Resolve(t.Context(), testnet.ParseName(t, "absent.example"))
	_, _ = r.Resolve(t.Context(), testnet.ParseName(t, "big.example"))
	got := s.Questions()
	slices.Sort(got)
	want := []string{
		"tcp big.example. A", "tcp big.example. AAAA",
		"udp absent.example. A", "udp absent.example. AAAA", "udp big.example. A", "udp big.example. AAAA",
	}
	if !slices.Equal(got, want) {
		t.Errorf("asked %q, want %q", got, want)
	}
}

// The next server answers where one is dead, silent or broken; that a name does
// not exist is an answer.
//
// probe: R10
// oracle: which of two real servers has answered
func TestResolveNextServer(t *testing.T) {
	const zone = "four.example. 60 IN A 192.0.2.4\nservfail.example. 60 IN A 192.0.2.5\nsilent.example. 60 IN A 192.0.2.6\n"
	good, bad := testnet.StartDNS(t, zone), testnet.StartDNS(t, "")
	good.Sound.Store(true)
	dead := netip.MustParseAddrPort("127.0.0.1:1")
	tests := []struct {
		name  string
		first netip.AddrPort
		want  string
	}{
		{"four.example", dead, "[192.0.2.4]"},
		{"servfail.example", bad.Addr, "[192.0.2.5]"},
		{"silent.example", bad.Addr, "[192.0.2.6]"},
		{"four.example", bad.Addr, "[]"},
	}
	for _, tt := range tests {
		r := &Client{Servers: []Server{UDPServer(tt.first), UDPServer(good.Addr)}}
		addrs, err := r.Resolve(t.Context(), testnet.ParseName(t, tt.name))
		if got := fmt.Sprint(addrs); got != tt.want || (err == nil) != (len(addrs) > 0) {
			t.Errorf("%s by way of %s: %s, %v; want %s", tt.name, tt.first, got, err, tt.want)
		}
	}
}

// TestResolveFailsClosed asks nobody, a silent server, and for no name.
//
// probe: R10
// oracle: an error and no address
func TestResolveFailsClosed(t *testing.T) {
	s := testnet.StartDNS(t, testZone)
	r := &Client{Servers: []Server{UDPServer(s.Addr)}}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	start := time.Now()
	if addrs, err := r.Resolve(ctx, testnet.ParseName(t, "silent.example")); err == nil {
		t.Errorf("a silent server resolved to %v", addrs)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("a cancelled look-up took %v", d)
	}
	if _, err := r.Resolve(t.Context(), firewall.Name{}); err == nil {
		t.Error("no name resolved")
	}
	if _, err := new(Client).Resolve(t.Context(), testnet.ParseName(t, "four.example")); err == nil {
		t.Error("resolved without a server")
	}
}

// probe: R9
// oracle: the servers that are made of a resolv.conf with search domains
func TestSystemResolver(t *testing.T) {
	tests := []struct {
		name, conf, want, err string
	}{
		{"two", "# c\nsearch corp.example\nnameserver 192.0.2.53\nnameserver fe80::1%eth0\noptions ndots:5\n", "[udp://192.0.2.53:53 udp://[fe80::1%eth0]:53]", ""},
		{"none", "search corp.example\n", "", "no nameserver"},
		{"empty", "", "", "no nameserver"},
		{"a name", "nameserver dns.example\n", "", "not an IP address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(path, []byte(tt.conf), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := System(path)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || fmt.Sprint(r.Servers) != tt.want {
				t.Errorf("%v, %v; want %s", r, err, tt.want)
			}
		})
	}
	if _, err := System(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("a missing file is no error")
	}
}

// What one family's answer says of both: a refusal and a failure of the gate's own are
// those of the name, whatever the other one has.
//
// probe: R3
// oracle: the error, and the address that the other family had
func TestMerge(t *testing.T) {
	name, addr := testnet.ParseName(t, "site.example"), netip.MustParseAddr("192.0.2.1")
	found := func(ttl time.Duration) outcome { return outcome{Answer: Answer{[]netip.Addr{addr}, ttl}} }
	refused, failed, silent := &RefusedError{Detail: "floor"}, &contain.Panic{}, errors.New("silence")
	for what, tt := range map[string]struct {
		results [2]outcome
		ttl     time.Duration
		err     error
	}{
		"both":                     {[2]outcome{found(2), found(1)}, 1, nil},
		"both, the other way":      {[2]outcome{found(1), found(2)}, 1, nil},
		"the first alone":          {[2]outcome{found(2), {}}, 2, nil},
		"the other is silent":      {[2]outcome{found(2), {err: silent}}, 0, nil},
		"the first is refused":     {[2]outcome{{err: refused}, found(2)}, 0, refused},
		"the other is refused":     {[2]outcome{found(2), {err: fmt.Errorf("asking: %w", refused)}}, 0, refused},
		"the gate failed over one": {[2]outcome{found(2), {err: failed}}, 0, failed},
		"both are silent":          {[2]outcome{{err: silent}, {err: silent}}, 0, silent},
	} {
		a, err := merge(name, tt.results)
		if !errors.Is(err, tt.err) || a.TTL != tt.ttl || (len(a.Addrs) == 0) != (tt.err != nil) {
			t.Errorf("%s: %+v, %v, want %v, %v", what, a, err, tt.ttl, tt.err)
		}
	}
	if a, err := merge(name, [2]outcome{}); err == nil {
		t.Errorf("no address: %+v", a)
	}
}

// No name and no server are errors, and a server that fails is told apart.
func TestResolveObserve(t *testing.T) {
	s := testnet.StartDNS(t, "site.example. 60 IN A 192.0.2.1\n")
	name := testnet.ParseName(t, "site.example")
	var mu sync.Mutex
	seen := map[bool]int{}
	client := func(servers ...Server) *Client {
		return &Client{Servers: servers, Observe: func(_ Server, _ time.Duration, ok bool) {
			mu.Lock()
			defer mu.Unlock()
			seen[ok]++
		}}
	}
	if _, err := client(UDPServer(s.Addr)).Resolve(t.Context(), name); err != nil || seen[true] != 2 || seen[false] != 0 {
		t.Errorf("%v, observed %v", err, seen)
	}
	clear(seen)
	closed := Server{Transport: OverTCP, Addr: netip.MustParseAddrPort("127.0.0.1:1")}
	if _, err := client(closed).Resolve(t.Context(), name); err == nil || seen[true] != 0 || seen[false] == 0 {
		t.Errorf("a closed port: %v, observed %v", err, seen)
	}
	for what, ask := range map[string]func() error{
		"no server": func() error { _, err := client().Resolve(t.Context(), name); return err },
		"no name":   func() error { _, err := client(UDPServer(s.Addr)).Resolve(t.Context(), firewall.Name{}); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "no name or no server") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
