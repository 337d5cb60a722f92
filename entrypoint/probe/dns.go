package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// queryID is the identifier of all our queries: each has a socket of its own.
const queryID = 0x5a11

func tryDNS(ctx context.Context, p Probe) finding {
	query, err := buildQuery(p.ServerName)
	if err != nil {
		return refused(err)
	}
	network, exchange := "udp", exchangeUDP
	if p.Kind == DNSTCP {
		network, exchange = "tcp", exchangeTCP
	}
	c, err := dial(ctx, net.Dialer{}, network, p.Address)
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	answer, err := exchange(c, query)
	if err != nil {
		return refused(err)
	}
	detail, err := describeAnswer(answer)
	if err != nil {
		return refused(err)
	}
	return finding{reached: true, detail: detail}
}

func buildQuery(name string) ([]byte, error) {
	n, err := dnsmessage.NewName(strings.TrimSuffix(name, ".") + ".")
	if err != nil {
		return nil, fmt.Errorf("query name %q: %w", name, err)
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: queryID, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	return m.Pack()
}

func exchangeUDP(c net.Conn, query []byte) ([]byte, error) {
	if _, err := c.Write(query); err != nil {
		return nil, err
	}
	answer := make([]byte, 4096)
	n, err := c.Read(answer)
	if err != nil {
		return nil, fmt.Errorf("sent, no answer: %w", err)
	}
	return answer[:n], nil
}

// exchangeTCP frames the messages by their length (RFC 1035, section 4.2.2).
func exchangeTCP(c net.Conn, query []byte) ([]byte, error) {
	framed := binary.BigEndian.AppendUint16(nil, uint16(len(query)))
	if _, err := c.Write(append(framed, query...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, fmt.Errorf("sent, no answer: %w", err)
	}
	answer := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, answer); err != nil {
		return nil, fmt.Errorf("sent, answer cut short: %w", err)
	}
	return answer, nil
}

// describeAnswer tells an answer's code and addresses.
func describeAnswer(b []byte) (string, error) {
	var p dnsmessage.Parser
	h, err := p.Start(b)
	if err != nil {
		return "", fmt.Errorf("the answer is malformed: %w", err)
	}
	if h.ID != queryID || !h.Response {
		return "", errors.New("the answer is to another question")
	}
	code := strings.TrimPrefix(h.RCode.GoString(), "dnsmessage.RCode")
	if err := p.SkipAllQuestions(); err != nil {
		return "", fmt.Errorf("the answer is malformed: %w", err)
	}
	answers, err := p.AllAnswers()
	if err != nil {
		return "", fmt.Errorf("the answer is malformed: %w", err)
	}
	var addrs []string
	for _, a := range answers {
		if r, ok := a.Body.(*dnsmessage.AResource); ok {
			addrs = append(addrs, netip.AddrFrom4(r.A).String())
		}
	}
	return fmt.Sprintf("%s %v", code, addrs), nil
}
