package firewall_test

import (
	"net/netip"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/firewalltest"
)

// The rows of the IANA special-purpose registries and of the clouds, written
// out a second time so that a slip in the tables shows.
var (
	refusedRanges = strings.Fields(`
		0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12
		192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16
		192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
		168.63.129.16/32
		2001::/23 2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 3ffe::/16
		::/128 ::1/128 ::/96 ::ffff:0:0/96 ::ffff:0:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64
		5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
		0000::/3 4000::/2 8000::/1`)  // the last three: all that is outside 2000::/3
	metadata = strings.Fields(`
		169.254.169.254 169.254.169.253 169.254.169.123 169.254.170.2 169.254.170.23 169.254.0.23 169.254.42.42
		169.254.169.250 100.100.100.200 168.63.129.16 192.0.0.192
		fd00:ec2:: fd00:ec2::254 fd00:ec2:ffff::1 fd20:ce::254 fd00:c1::a9fe:a9fe fd00:42::42 fd00:a9fe:a9fe::1
		fe80::a9fe:a9fe fd00:100::100:200 fdaa:: fdaa:0:1::3 fdaa:ffff::`)
	samples = strings.Fields(`
		0.0.0.0 10.1.2.3 100.127.255.255 127.0.0.1 127.255.255.254 172.31.255.255 192.0.0.8 192.0.0.170 192.88.99.1
		198.19.255.255 239.255.255.250 255.255.255.255
		:: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:8.8.8.8 ::ffff:127.0.0.1 ::ffff:0:10.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 100::1
		100:0:0:1::1 4000::1 5f00::1 fc00::1 fd12:3456::1 fe80::1 fec0::1 ff02::1 ff0e::1
		2001::1 2001:1::1 2001:1::2 2001:1::3 2001:2::1 2001:3::1 2001:4:112::1 2001:10::1 2001:20::1 2001:30::1 2001:1ff:ffff::1
		2001:db8::1 2002:7f00:1::1 2002:a9fe:a9fe:: 2620:4f:8000::1 3fff::1 3fff:fff:ffff::1 3ffe::1
		2600::5efe:10.0.0.1 2600::200:5efe:8.8.8.8 2600:1:2:3:0:5efe:a9fe:a9fe`)
	public = strings.Fields(`
		1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 169.253.255.255
		169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.0.3.0 192.31.195.255 192.167.255.255 192.169.0.0 198.17.255.255
		198.20.0.0 203.0.112.255 203.0.114.0 223.255.255.255 168.63.129.15 168.63.129.17 140.82.121.4
		2000::1 2001:200::1 2001:db7:ffff::1 2001:db9::1 2003::1 2606:4700::1111 2620:4f:7fff::1 2620:4f:8001::1 2a00:1450::1
		3ffd::1 3fff:1000::1 2600::1:5efe:10.0.0.1 2600::5eff:10.0.0.1`)
)

// TestJudgeAddr judges addresses that are one of a kind.
//
// probe: R1, R2
// oracle: a second list of the registries' rows, written for the test; public
// neighbours pass
func TestJudgeAddr(t *testing.T) {
	for _, s := range append(append(samples, metadata...), "fe80::1%eth0", "2606:4700::1111%1") {
		if ok, detail := firewall.JudgeAddr(netip.MustParseAddr(s)); ok || detail == "" {
			t.Errorf("JudgeAddr(%s) = %v, %q; want a refusal", s, ok, detail)
		}
	}
	for _, s := range public {
		if ok, detail := firewall.JudgeAddr(netip.MustParseAddr(s)); !ok || detail != "" {
			t.Errorf("JudgeAddr(%s) = %v, %q; want it allowed", s, ok, detail)
		}
	}
	if ok, _ := firewall.JudgeAddr(netip.Addr{}); ok {
		t.Error("the zero address is allowed")
	}
}

// TestAddressEdges judges the first and last address of every row and their
// neighbours outside it.
//
// probe: R1
// oracle: a second list of the registries' rows; the neighbours outside pass
func TestAddressEdges(t *testing.T) {
	var ranges []netip.Prefix
	for _, s := range refusedRanges {
		ranges = append(ranges, netip.MustParsePrefix(s))
	}
	refused := func(a netip.Addr) bool {
		for _, r := range ranges {
			if r.Contains(a) {
				return true
			}
		}
		return false
	}
	outside := 0
	for _, r := range ranges {
		first, last := r.Addr(), lastOf(r)
		for _, a := range []netip.Addr{first, last, first.Next(), last.Prev(), first.Prev(), last.Next()} {
			if !a.IsValid() {
				continue // before the first of all addresses, or after the last
			}
			want := !refused(a)
			if want {
				outside++
			}
			if ok, detail := firewall.JudgeAddr(a); ok != want {
				t.Errorf("edge of %s: JudgeAddr(%s) = %v, %q; want %v", r, a, ok, detail, want)
			}
		}
	}
	if outside < 30 {
		t.Errorf("only %d neighbours lie in public space: the test judges too little", outside)
	}
	for p, what := range firewall.AddressRows() {
		if p != p.Masked() || what == "" {
			t.Errorf("row %s %q is not canonical", p, what)
		}
		if !refused(p.Addr()) {
			t.Errorf("row %s %q is in none of the ranges of this test", p, what)
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// TestPrivateRanges admits ranges to some hosts: it lowers the floor nowhere else.
//
// probe: R1, R2
// oracle: the verdict on each address beside those that the entry admits
func TestPrivateRanges(t *testing.T) {
	p := firewalltest.Policy(t, `
version: 1
policies:
  p:
    allow:
      - {host: .corp.example, private: [10.20.0.0/16, 100.64.0.0/10, "fc00::/7", "::1/128"]}
      - {host: plain.corp.example}
      - other.example
  open: {extends: p, allow: any}
`, "p")
	tests := []struct {
		host, addr string
		want       bool
	}{
		{"git.corp.example", "10.20.3.4", true},
		{"git.corp.example", "10.20.255.255", true},
		{"git.corp.example", "8.8.8.8", true}, // public is allowed beside
		{"git.corp.example", "100.64.0.1", true},
		{"git.corp.example", "fd12::1", true},
		{"git.corp.example", "::1", true},
		{"git.corp.example", "10.21.0.0", false},
		{"git.corp.example", "10.19.255.255", false},
		{"git.corp.example", "192.168.0.1", false},
		{"git.corp.example", "::ffff:10.20.3.4", false},
		{"git.corp.example", "fd12::1%eth0", false},
		{"git.corp.example", "fd12::5efe:10.20.3.4", false}, // ISATAP
		{"git.corp.example", "::10.20.3.4", false},
		{"git.corp.example", "64:ff9b::10.20.3.4", false},
		{"plain.corp.example", "10.20.3.4", false}, // the more specific entry decides
		{"plain.corp.example", "8.8.8.8", true},
		{"other.example", "10.20.3.4", false},
		{"nowhere.example", "8.8.8.8", false}, // a refused name leads nowhere
	}
	for _, tt := range tests {
		d := p.Decide(firewalltest.Name(t, tt.host), 443)
		if ok, detail := d.JudgeAddr(netip.MustParseAddr(tt.addr)); ok != tt.want || ok == (detail != "") {
			t.Errorf("%s -> %s: %v, %q; want %v", tt.host, tt.addr, ok, detail, tt.want)
		}
	}
	admitted := p.Decide(firewalltest.Name(t, "git.corp.example"), 443)
	for _, s := range metadata { // inside the admitted ranges, some of them
		if ok, _ := admitted.JudgeAddr(netip.MustParseAddr(s)); ok {
			t.Errorf("the metadata address %s is admitted", s)
		}
	}
	if ok, _ := (firewall.Decision{}).JudgeAddr(netip.MustParseAddr("8.8.8.8")); ok {
		t.Error("the zero Decision admits an address")
	}
}

// TestJudgeAnswer judges whole answers.
//
// probe: R3, R10
// oracle: the verdict on each answer beside good ones
func TestJudgeAnswer(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Anything, "p")
	allowed := p.Decide(firewalltest.Name(t, "rebind.example"), 443)
	if !allowed.Allowed() {
		t.Fatal("rebind.example is refused")
	}
	many := make([]netip.Addr, 65)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{93, 184, 216, byte(i)})
	}
	addrs := func(s ...string) (as []netip.Addr) {
		for _, s := range s {
			as = append(as, netip.MustParseAddr(s))
		}
		return as
	}
	tests := []struct {
		name  string
		d     firewall.Decision
		addrs []netip.Addr
		want  bool
	}{
		{"one public", allowed, addrs("93.184.216.34"), true},
		{"public of both families", allowed, addrs("93.184.216.34", "2606:2800:220::1"), true},
		{"64", allowed, many[:64], true},
		{"none", allowed, nil, false},
		{"65", allowed, many, false},
		{"private last", allowed, addrs("93.184.216.34", "10.0.0.1"), false},
		{"private first", allowed, addrs("127.0.0.1", "93.184.216.34"), false},
		{"metadata", allowed, addrs("169.254.169.254"), false},
		{"an invalid one", allowed, append(addrs("93.184.216.34"), netip.Addr{}), false},
		{"refused name", firewall.Decision{Verdict: firewall.Deny}, addrs("93.184.216.34"), false},
		{"zero decision", firewall.Decision{}, addrs("93.184.216.34"), false},
	}
	for _, tt := range tests {
		if ok, detail := firewall.JudgeAnswer(tt.d, tt.addrs); ok != tt.want || ok == (detail != "") {
			t.Errorf("%s: JudgeAnswer = %v, %q; want %v", tt.name, ok, detail, tt.want)
		}
	}
}

func BenchmarkJudgeAddr(b *testing.B) {
	for _, s := range []string{"140.82.121.4", "2606:4700::1111"} {
		a := netip.MustParseAddr(s)
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				firewall.JudgeAddr(a)
			}
		})
	}
}
