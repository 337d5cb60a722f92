package dnsgate

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// How a stream is cut into segments says nothing: each query gets its answer, in
// the order of the queries.
//
// probe: X8
// oracle: the answers on the connection, each with the id and name of its query; a
// record for each
func TestTCPSegments(t *testing.T) {
	names := []string{"allowed.example.", "other.example.", "x.tree.example."}
	var stream []byte
	var ends []int // of each query in the stream
	for i, name := range names {
		q := question(name, dns.TypeA)
		q.Id = uint16(100 + i)
		stream = append(stream, frame(pack(t, q))...)
		ends = append(ends, len(stream))
	}
	everyByte := make([]int, len(stream))
	for i := range everyByte {
		everyByte[i] = i
	}
	for name, cuts := range map[string][]int{
		"all in one segment":                   nil,
		"two in one segment":                   {ends[1]},
		"a byte a segment":                     everyByte,
		"each length alone":                    {2, ends[0], ends[0] + 2, ends[1], ends[1] + 2},
		"each length in two":                   {1, ends[0], ends[0] + 1, ends[1], ends[1] + 1},
		"the end of one, the begin of another": {ends[0] - 3, ends[1] - 3},
		"half a length behind a query":         {ends[0] + 1, ends[1] + 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := serve(t, Server{Policy: policy(t, "strict")})
			c := g.dial(t, "tcp4")
			from := 0
			for _, at := range append(slices.Clone(cuts), len(stream)) {
				if _, err := c.Write(stream[from:at]); err != nil {
					t.Fatal(err)
				}
				from = at
				time.Sleep(time.Millisecond) // so that the kernel does not join them again
			}
			for i, name := range names {
				m, err := readReply(c)
				if err != nil {
					t.Fatal(err)
				}
				if m.Id != uint16(100+i) || m.Question[0].Name != name || (len(m.Answer) == 1) != (i != 1) {
					t.Errorf("answer %d is\n%v", i, m)
				}
			}
			if err := g.stop(); err != nil {
				t.Fatal(err)
			}
			var hosts []string
			for _, r := range g.take() {
				hosts = append(hosts, fmt.Sprint(r.Host, " ", r.Reason))
			}
			if got, want := strings.Join(hosts, ", "), "allowed.example listed, other.example not_listed, x.tree.example listed"; got != want {
				t.Errorf("records of %s, want %s", got, want)
			}
		})
	}
}

// A reply is hardly longer than its query, and never longer than the query takes:
// nobody gains from having the gate send packets elsewhere.
//
// probe: X11, D16
// oracle: the length of the reply on the socket, beside that of the query
func TestRepliesAreShort(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "strict"), Rate: 1e6, Burst: 1e6})
	const record = 64 // the SOA of a refusal is the longest that is added
	label := strings.Repeat("a", 63)
	for _, name := range []string{".", "allowed.example.", "other.example.", label + "." + label + "." + label + ".tree.example.",
		label + "." + label + "." + label + ".other.example.", strings.Repeat("a.", 120) + "tree.example."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeANY, dns.TypeTXT, dns.TypeDNSKEY, dns.TypeNS, dns.TypeHTTPS, dns.TypeAXFR} {
			for _, size := range []int{-1, 0, 512, 4096, 65535} { // -1 is no EDNS
				q := question(name, qtype)
				takes := dns.MinMsgSize
				if size >= 0 {
					q.SetEdns0(uint16(size), true)
					takes = min(max(size, takes), maxReply)
				}
				msg := pack(t, q)
				m, n := g.raw(t, msg)
				if n > takes || n > len(msg)+record || m.Truncated {
					t.Errorf("%s %s with size %d: %d bytes for %d", name, dns.TypeToString[qtype], size, n, len(msg))
				}
			}
		}
	}
	for _, test := range malformedMessages(t) {
		if test.silent {
			continue
		}
		if _, n := g.raw(t, test.msg); n > max(len(test.msg), headerLen)+record {
			t.Errorf("%s: %d bytes for %d", test.name, n, len(test.msg))
		}
	}
	g.alive(t)
}

// When the server has ended, look-ups fail at once: nothing is left at its address.
//
// probe: D3, P4
// oracle: the kernel's answer to the client, on both transports, which had answers
// from the server before
func TestNobodyAnswersForADeadServer(t *testing.T) {
	g := serve(t, Server{Policy: policy(t, "open")})
	g.alive(t)
	udp, tcp := g.dial(t, "udp4"), g.dial(t, "tcp4")
	msg := pack(t, question("allowed.example.", dns.TypeA))
	if _, err := exchange(tcp, msg); err != nil {
		t.Fatal(err)
	}
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	records := len(g.take())
	buf := make([]byte, maxReply)
	_, err := udp.Write(msg)
	if err == nil {
		_, err = udp.Read(buf)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("over UDP: %v, want it refused", err)
	}
	if m, err := exchange(tcp, msg); err == nil || m != nil {
		t.Errorf("over the open connection: %v, %v", m, err)
	}
	if _, err := net.Dial("tcp4", g.addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("over TCP: %v, want it refused", err)
	}
	if records != 2 || len(g.take()) != 0 {
		t.Errorf("%d records before the end, want 2 and none after", records)
	}
}
