package main

import (
	"net"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// spelling are the zones whose names spell the address that they lead to, as in
// 10-1-2-3.addr.example.
var spelling = []string{".addr.example.", ".addr.docs.example."}

// spelled answers for a name of these zones.
func spelled(name string, qtype uint16) (answer []dns.RR, exists bool) {
	for _, zone := range spelling {
		label, ok := strings.CutSuffix(name, zone)
		if !ok {
			continue
		}
		addr, err := netip.ParseAddr(strings.ReplaceAll(label, "-", "."))
		if err != nil {
			return nil, false
		}
		if qtype == dns.TypeA {
			answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: qtype, Class: dns.ClassINET}, A: net.IP(addr.AsSlice())}}
		}
		return answer, true
	}
	return nil, false
}
