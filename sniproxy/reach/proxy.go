package reach

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

	"sallyport/internal/evloop"
	"sallyport/sniproxy/socket"
)

// MaxConnectHead bounds, in bytes, what a proxy may answer to CONNECT.
const MaxConnectHead = 16 << 10

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

// target is what the proxy is asked for.
func (p *Proxy) target(to Target, judged netip.Addr) string {
	if p.ByAddress {
		return netip.AddrPortFrom(judged, to.Port).String()
	}
	return fmt.Sprintf("%s:%d", to.Name, to.Port)
}

// askProxy asks the proxy for a tunnel over a connection to it, aside.
func (d *Dial) askProxy(c Conn) {
	proxy, target := d.proxy, d.asked
	d.aside(func(ctx context.Context) func() {
		conn, err := socket.Conn(c.FD)
		if err == nil {
			err = proxy.tunnel(ctx, conn, target)
			if err == nil {
				c.FD, err = evloop.Take(conn)
			} else {
				socket.ResetConn(conn)
			}
		}
		return func() {
			switch {
			case err != nil:
				d.failed(c.Addr, err)
			case d.cancelled:
				socket.Reset(c.FD)
				d.finish(Conn{FD: -1, Addr: c.Addr}, dialFault(context.Canceled))
			default:
				d.finish(Conn{FD: c.FD, Addr: c.Addr}, nil)
			}
		}
	})
}

// tunnel asks for a tunnel to target and reads the answer, and not a byte more.
func (p Proxy) tunnel(ctx context.Context, conn *net.TCPConn, target string) error {
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end) // what follows fails if this did
	defer context.AfterFunc(ctx, func() { socket.ResetConn(conn) })()
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
		if len(head) == MaxConnectHead {
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
