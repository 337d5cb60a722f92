package main

import (
	_ "embed"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

//go:embed zone.txt
var zoneText string

// rebinding is the name whose address changes with each query.
const rebinding = "rebind.example."

// A zone holds all records by their owner's name.
type zone map[string][]dns.RR

// parseZone fills this internet's addresses into the zone file.
func parseZone(s settings) (zone, error) {
	text := strings.NewReplacer("{{LAN}}", s.LAN.String(), "{{WAN}}", s.WAN.String(),
		"{{NOBODY}}", nobody(s.WAN).String()).Replace(zoneText)
	z := make(zone)
	p := dns.NewZoneParser(strings.NewReader(text), ".", "zone.txt")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		owner := dns.CanonicalName(rr.Header().Name)
		z[owner] = append(z[owner], rr)
	}
	if err := p.Err(); err != nil {
		return nil, fmt.Errorf("parse the zone: %w", err)
	}
	if len(z[rebinding]) != 1 {
		return nil, fmt.Errorf("the zone has %d records of %s, want 1", len(z[rebinding]), rebinding)
	}
	rebound := dns.Copy(z[rebinding][0]).(*dns.A)
	rebound.A = net.IP(s.LAN.AsSlice())
	z[rebinding] = append(z[rebinding], rebound)
	return z, nil
}

// nobody is an address beside a that is not in use.
func nobody(a netip.Addr) netip.Addr {
	b := a.As4()
	b[3] ^= 0x80
	return netip.AddrFrom4(b)
}

// names are the zone's names without the trailing dot, sorted.
func (z zone) names() []string {
	names := slices.Sorted(maps.Keys(z))
	for i, n := range names {
		names[i] = strings.TrimSuffix(n, ".")
	}
	return names
}

// answer returns the records of a type, following one alias after another, and
// whether the name exists.
func (z zone) answer(name string, qtype uint16) (answer []dns.RR, exists bool) {
	for range 8 {
		records, ok := z[name]
		if !ok {
			if own, exists := spelled(name, qtype); exists {
				return append(answer, own...), true
			}
			return answer, len(answer) > 0
		}
		var next string
		for _, rr := range records {
			if alias, ok := rr.(*dns.CNAME); ok {
				answer, next = append(answer, rr), dns.CanonicalName(alias.Target)
			} else if rr.Header().Rrtype == qtype {
				answer = append(answer, rr)
			}
		}
		if next == "" {
			return answer, true
		}
		name = next
	}
	return answer, true
}

// A resolver answers for the whole internet, which is this zone.
type resolver struct {
	zone zone
	hits *hits
	// asked counts the address queries for the rebinding name.
	asked atomic.Uint64
}

// ServeDNS implements dns.Handler.
func (r *resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	if len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		m.Rcode = dns.RcodeRefused
		_ = w.WriteMsg(m) // a client that has gone is none of our business
		return
	}
	question := q.Question[0]
	name := dns.CanonicalName(question.Name)
	r.hits.add(hit{Time: time.Now(), Kind: "dns", Name: strings.TrimSuffix(name, "."),
		Detail: dns.Type(question.Qtype).String(), From: w.RemoteAddr().String(), To: w.LocalAddr().String()})
	var exists bool
	if m.Answer, exists = r.zone.answer(name, question.Qtype); !exists {
		m.Rcode = dns.RcodeNameError
	}
	if name == rebinding && question.Qtype == dns.TypeA {
		m.Answer = r.rebind(m.Answer)
	}
	_ = w.WriteMsg(m)
}

// rebind gives the public address first, the private one to the next query.
func (r *resolver) rebind(both []dns.RR) []dns.RR {
	n := int((r.asked.Add(1) - 1) % 2)
	return both[n : n+1]
}
