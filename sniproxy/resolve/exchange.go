package resolve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
)

// The bounds on connections to servers over TLS that wait for the next question:
// a handshake for each would cost two round trips more (RFC 7858, section 3.4).
const (
	idleConns   = 4 // of one server
	idleTimeout = 10 * time.Second
	// idleTry is how long one of them has for its answer: a path that has changed
	// meanwhile takes what is sent and gives nothing.
	idleTry = tryTimeout / 3
)

// exchange asks one server: over UDP, and over TCP where the answer is cut, or
// over its own transport.
func (r *Client) exchange(ctx context.Context, server Server, name firewall.Name, qtype uint16) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	q := new(dns.Msg)
	q.SetQuestion(name.String()+".", qtype)
	q.SetEdns0(udpSize, false)
	switch server.Transport {
	case OverTLS:
		padQuery(q)
		return r.exchangeTLS(ctx, server, q)
	case OverTCP:
		return exchangeOver(ctx, "tcp", server, q)
	}
	m, err := exchangeOver(ctx, "udp", server, q)
	if err == nil && m.Truncated {
		m, err = exchangeOver(ctx, "tcp", server, q)
	}
	return m, err
}

func exchangeOver(ctx context.Context, network string, server Server, q *dns.Msg) (*dns.Msg, error) {
	c := dns.Client{Net: network, Timeout: tryTimeout}
	conn, err := c.DialContext(ctx, server.Addr.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return askOver(ctx, &c, conn, q)
}

// askOver puts a question over a connection and holds the answer to it.
func askOver(ctx context.Context, c *dns.Client, conn *dns.Conn, q *dns.Msg) (*dns.Msg, error) {
	// The client heeds the context's deadline, not its end.
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	m, _, err := c.ExchangeWithConnContext(ctx, q, conn)
	if err != nil {
		return nil, err
	}
	if !m.Response || m.Opcode != dns.OpcodeQuery || len(m.Question) != 1 ||
		!strings.EqualFold(m.Question[0].Name, q.Question[0].Name) ||
		m.Question[0].Qtype != q.Question[0].Qtype || m.Question[0].Qclass != dns.ClassINET {
		return nil, errors.New("the answer is to another question")
	}
	return m, nil
}

// exchangeTLS asks over a connection that is open, or over a new one: servers
// close idle ones when they like, so one that fails says nothing.
func (r *Client) exchangeTLS(ctx context.Context, server Server, q *dns.Msg) (*dns.Msg, error) {
	c := &dns.Client{Net: "tcp-tls", Timeout: tryTimeout, TLSConfig: &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    cmp.Or(r.roots.Load(), r.Roots),
		ServerName: cmp.Or(server.Name, server.Addr.Addr().WithZone("").String()),
	}}
	if conn := r.idle.take(server); conn != nil {
		ictx, cancel := context.WithTimeout(ctx, idleTry)
		m, err := askOver(ictx, c, conn, q)
		cancel()
		if err == nil {
			r.idle.keep(ctx, server, conn)
			return m, nil
		}
		conn.Close()
		r.idle.forget(server) // the others went the same way
	}
	conn, err := c.DialContext(ctx, server.Addr.String())
	if err != nil {
		return nil, err
	}
	m, err := askOver(ctx, c, conn, q)
	if err != nil {
		conn.Close()
		return nil, err
	}
	r.idle.keep(ctx, server, conn)
	return m, nil
}

// padQuery fills a query to a multiple of 128 bytes, so that its length does not
// tell the name (RFC 8467, section 4.1).
func padQuery(q *dns.Msg) {
	const block, header = 128, 4
	n := (q.Len() + header) % block
	opt := q.IsEdns0()
	opt.Option = append(opt.Option, &dns.EDNS0_PADDING{Padding: make([]byte, (block-n)%block)})
}

// An idlePool holds open connections for the next question, each for a short
// time. The zero value is empty.
type idlePool struct {
	mu    sync.Mutex // guards conns
	conns map[Server][]*idleConn
}

type idleConn struct {
	*dns.Conn
	expire *time.Timer
}

// take removes the connection that was used last, or returns nil.
func (p *idlePool) take(server Server) *dns.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	for list := p.conns[server]; len(list) > 0; list = p.conns[server] {
		c := list[len(list)-1]
		p.conns[server] = list[:len(list)-1]
		if c.expire.Stop() {
			return c.Conn
		}
	}
	return nil
}

// keep takes a connection back. The end of ctx, which closes what is in use, may
// have come for it: then the next one to take it finds it dead.
func (p *idlePool) keep(ctx context.Context, server Server, conn *dns.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil || len(p.conns[server]) >= idleConns {
		conn.Close()
		return
	}
	if p.conns == nil {
		p.conns = make(map[Server][]*idleConn)
	}
	c := &idleConn{Conn: conn}
	c.expire = time.AfterFunc(idleTimeout, func() { p.drop(server, c) })
	p.conns[server] = append(p.conns[server], c)
}

// drop closes a connection that has waited for too long.
func (p *idlePool) drop(server Server, conn *idleConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	conn.Close()
	list := p.conns[server]
	for i, c := range list {
		if c == conn {
			p.conns[server] = append(list[:i:i], list[i+1:]...)
			return
		}
	}
}

// forget closes the connections to a server that wait.
func (p *idlePool) forget(server Server) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns[server] {
		c.expire.Stop()
		c.Close()
	}
	delete(p.conns, server)
}

// CloseIdle closes the connections that wait for a next question.
func (r *Client) CloseIdle() {
	r.idle.mu.Lock()
	servers := slices.Collect(maps.Keys(r.idle.conns))
	r.idle.mu.Unlock()
	for _, server := range servers {
		r.idle.forget(server)
	}
}
