package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// dial connects and sets the probe's deadline on the connection, which ends with ctx, too.
func dial(ctx context.Context, d net.Dialer, network, address string) (net.Conn, error) {
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		c.Close()
		return nil, fmt.Errorf("set the deadline: %w", err)
	}
	context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	return c, nil
}

// talk sends the payload and waits for an answer.
func talk(c net.Conn, payload string) finding {
	if _, err := io.WriteString(c, payload); err != nil {
		return refused(err)
	}
	answer := make([]byte, 256)
	n, err := c.Read(answer)
	if n == 0 {
		return finding{detail: fmt.Sprintf("sent, no answer: %v", err)}
	}
	return finding{reached: true, detail: fmt.Sprintf("%s answered %.64q", c.RemoteAddr(), answer[:n])}
}

func tryTCP(ctx context.Context, p Probe) finding {
	return connectTCP(ctx, net.Dialer{}, "tcp", p.Address, p.Payload)
}

func connectTCP(ctx context.Context, d net.Dialer, network, address, payload string) finding {
	c, err := dial(ctx, d, network, address)
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	if payload == "" {
		return finding{reached: true, detail: "connected to " + c.RemoteAddr().String()}
	}
	return talk(c, payload)
}

func tryUDP(ctx context.Context, p Probe) finding {
	return sendUDP(ctx, net.Dialer{}, "udp", p.Address, p.Payload)
}

func sendUDP(ctx context.Context, d net.Dialer, network, address, payload string) finding {
	c, err := dial(ctx, d, network, address)
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	return talk(c, payload)
}

// A noted connection keeps the first bytes that it reads.
type noted struct {
	net.Conn
	first []byte
}

func (c *noted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if len(c.first) < serverHelloAt+1 {
		c.first = append(c.first, b[:n]...)
	}
	return n, err
}

// serverHelloAt is where a TLS record of a server's first flight has the type of
// its message, after the record's type, version and length (RFC 8446, section 5.1).
const serverHelloAt = 5

// serverHello says whether a server's handshake has begun, rather than an alert
// or our own hello come back.
func (c *noted) serverHello() bool {
	const handshake, hello = 22, 2
	return len(c.first) > serverHelloAt && c.first[0] == handshake && c.first[serverHelloAt] == hello
}

func tryTLS(ctx context.Context, p Probe) finding {
	c, err := dial(ctx, net.Dialer{}, "tcp", p.Address)
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	conn := &noted{Conn: c}
	// Whose certificate it is does not matter: that anyone answers does.
	client := tls.Client(conn, &tls.Config{ServerName: p.ServerName, InsecureSkipVerify: true})
	err = client.HandshakeContext(ctx)
	switch {
	case err == nil:
		name := client.ConnectionState().PeerCertificates[0].Subject.CommonName
		return finding{reached: true, detail: fmt.Sprintf("handshake done, certificate of %.128q", name)}
	case conn.serverHello():
		return finding{reached: true, detail: "the server's handshake began: " + err.Error()}
	}
	return refused(err)
}

func tryHTTP(ctx context.Context, p Probe) finding {
	if strings.ContainsAny(p.ServerName+p.Payload, " \r\n") {
		return refused(fmt.Errorf("host %q and path %q must hold no space", p.ServerName, p.Payload))
	}
	c, err := dial(ctx, net.Dialer{}, "tcp", p.Address)
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	begin := time.Now()
	_, err = fmt.Fprintf(c, "GET /%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", p.Payload, p.ServerName)
	if err != nil {
		return refused(err)
	}
	line, err := bufio.NewReader(io.LimitReader(c, 1024)).ReadString('\n')
	if !strings.HasPrefix(line, "HTTP/") {
		return finding{detail: fmt.Sprintf("no response after %v: %v", time.Since(begin).Round(time.Millisecond), err)}
	}
	return finding{reached: true, detail: strings.TrimSpace(line)}
}
