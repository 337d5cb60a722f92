package sniproxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"sallyport/firewall"
)

// maxConnectHead bounds what a proxy may answer to CONNECT.
const maxConnectHead = 16 << 10

// A Proxy is an HTTP proxy that opens tunnels on CONNECT (RFC 9110, section
// 9.3.6).
type Proxy struct {
	Addr netip.AddrPort
	// Credentials are "user:password" for basic authentication; "" for none.
	Credentials string
	// ByAddress asks for the judged address instead of the name. Asked for the
	// name, the proxy looks it up again, and what that leads to is its own to judge;
	// asked for the address, it cannot judge the name.
	ByAddress bool
}

// connectVia opens a tunnel through the proxy that d names, to a name whose
// addresses have been judged.
func (s *Server) connectVia(ctx context.Context, name firewall.Name, addrs []netip.Addr, port uint16, d firewall.Decision) (*net.TCPConn, netip.AddrPort, *refusal) {
	var p Proxy
	ok := s.Proxy != nil
	if ok {
		p, ok = s.Proxy(d.Via)
	}
	if !ok {
		return nil, netip.AddrPort{}, dialFault(fmt.Errorf("the gate has no proxy called %s", d.Via))
	}
	target := fmt.Sprintf("%s:%d", name, port)
	if p.ByAddress {
		target = netip.AddrPortFrom(addrs[0], port).String()
	}
	conn, err := s.dial(ctx, p.Addr)
	if err != nil {
		return nil, p.Addr, dialFault(fmt.Errorf("the proxy %s: %w", d.Via, err))
	}
	if err := p.tunnel(ctx, conn, target); err != nil {
		reset(conn)
		return nil, p.Addr, dialFault(fmt.Errorf("the proxy %s: %w", d.Via, err))
	}
	return conn, p.Addr, nil
}

func dialFault(err error) *refusal {
	if r := fault(err); r != nil {
		return r
	}
	return &refusal{reason: firewall.ReasonDial, detail: firewall.Escape(err.Error(), 200), alert: alertInternalError, status: http.StatusBadGateway}
}

// tunnel asks for a tunnel to target and reads the answer, and not a byte more.
func (p Proxy) tunnel(ctx context.Context, conn *net.TCPConn, target string) error {
	end, ok := ctx.Deadline()
	if !ok {
		end = time.Now().Add(connectTimeout)
	}
	_ = conn.SetDeadline(end) // what follows fails if this did
	defer context.AfterFunc(ctx, func() { reset(conn) })()
	var ask strings.Builder
	fmt.Fprintf(&ask, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", target, target)
	if p.Credentials != "" {
		fmt.Fprintf(&ask, "Proxy-Authorization: Basic %s\r\n", base64.StdEncoding.EncodeToString([]byte(p.Credentials)))
	}
	ask.WriteString("\r\n")
	if _, err := conn.Write([]byte(ask.String())); err != nil {
		return err
	}
	head, err := connectHead(conn)
	if err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fmt.Errorf("not an answer to CONNECT: %w", err)
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("it refuses %s: %s", target, resp.Status)
	}
	return conn.SetDeadline(time.Time{})
}

// connectHead reads up to the empty line that ends a head, byte by byte: what
// follows it is the server's, and for the client.
func connectHead(conn *net.TCPConn) ([]byte, error) {
	head := make([]byte, 0, 256)
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if len(head) == maxConnectHead {
			return nil, errors.New("an answer to CONNECT that is too long")
		}
		var b [1]byte
		if _, err := conn.Read(b[:]); err != nil {
			return nil, fmt.Errorf("reading the answer to CONNECT: %w", err)
		}
		head = append(head, b[0])
	}
	return head, nil
}
