package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/ipv4"
)

const (
	zones    = 14 // that are allowed
	distinct = 2000
	// patience is the wait for an answer, after which it counts as lost.
	patience = 2 * time.Second
	// tolerated is the share of queries that may be lost before a turn is void.
	tolerated = 0.01
)

// queries are the same each time: half of them for names under an allowed zone,
// half for others, of none to five labels more.
func queries() [][]byte {
	r := rand.New(rand.NewPCG(7, 7))
	all := make([][]byte, distinct)
	for i := range all {
		zone := fmt.Sprintf("zone%02d.example.", 1+r.IntN(zones))
		if i%2 == 1 {
			zone = []string{"not" + zone, zone + "example.", fmt.Sprintf("host%d.example.", r.IntN(500))}[r.IntN(3)]
		}
		var name strings.Builder
		for range r.IntN(6) {
			fmt.Fprintf(&name, "l%d.", r.IntN(1000))
		}
		q := new(dns.Msg).SetQuestion(name.String()+zone, dns.TypeA)
		q.Id = uint16(i)
		msg, err := q.Pack()
		if err != nil {
			panic(err) // of a constant
		}
		all[i] = msg
	}
	return all
}

// dial connects a client to each path of the server, and waits until each has
// an answer.
func (s *server) dial(queries [][]byte) ([]*net.UDPConn, error) {
	var conns []*net.UDPConn
	for _, p := range s.paths {
		c, err := net.DialUDP("udp4", &net.UDPAddr{IP: p.client.AsSlice()}, net.UDPAddrFromAddrPort(p.server))
		if err != nil {
			return conns, err
		}
		conns = append(conns, c)
		deadline := time.Now().Add(10 * time.Second)
		for {
			_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			_, err = c.Write(queries[0])
			if err == nil {
				_, err = c.Read(make([]byte, 512))
			}
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return conns, fmt.Errorf("%s does not answer: %w\n%s", s.name, err, s.tail())
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return conns, nil
}

func closeAll(conns []*net.UDPConn) {
	for _, c := range conns {
		c.Close()
	}
}

// ask sends the queries of a load, from number first on, in batches as the
// window allows, and returns the answers.
func ask(c *net.UDPConn, l load, queries [][]byte, first int) (answers int, err error) {
	conn := ipv4.NewPacketConn(c)
	in, out := messages(l.window), messages(l.window)
	sent, lost, allowed := 0, 0, 0
	for answers+lost < l.each {
		// A half-empty window is filled up: one packet at a time would measure the
		// client's calls of the kernel.
		// Answers may be more than queries: those to a greeting that was repeated.
		if room := min(l.window, l.window-(sent-answers-lost), l.each-sent); room > 0 && (2*room >= l.window || sent+room == l.each) {
			for i := range out[:room] {
				out[i].Buffers[0] = queries[(first+sent+i)%len(queries)]
			}
			n, err := conn.WriteBatch(out[:room], 0)
			if err != nil {
				return answers, err
			}
			sent += n
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		n, err := conn.ReadBatch(in, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			lost = sent - answers
			continue
		}
		if err != nil {
			return answers, err
		}
		for _, m := range in[:n] {
			if binary.BigEndian.Uint16(m.Buffers[0][6:]) > 0 {
				allowed++
			}
		}
		answers += n
	}
	if float64(lost) > tolerated*float64(l.each) {
		return answers, fmt.Errorf("%d of %d queries were lost", lost, l.each)
	}
	if share := float64(allowed) / float64(answers); share < 0.4 || share > 0.6 {
		return answers, fmt.Errorf("%.0f%% of the answers have an address, not half of them", 100*share)
	}
	return answers, nil
}

func messages(n int) []ipv4.Message {
	all := make([]ipv4.Message, n)
	for i := range all {
		all[i].Buffers = [][]byte{make([]byte, 1500)}
	}
	return all
}
