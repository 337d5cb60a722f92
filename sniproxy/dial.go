package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"sallyport/firewall"
	"sallyport/internal/contain"
	"sallyport/sniproxy/resolve"
)

// Bounds on reaching an upstream. There are more addresses than tries in some
// answers; each try may take what is left, the first ones at most dialTimeout.
const (
	connectTimeout = 20 * time.Second // to resolve and to dial, in all
	dialTimeout    = 10 * time.Second
	maxDials       = 4
	dialStagger    = 250 * time.Millisecond // RFC 8305, section 5
)

// keepAlive finds a peer that vanished within about two minutes. No tunnel has
// an idle time-out: a model may think for long before its next token.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// connect resolves the name that d allows, has the whole answer judged and dials
// one of the addresses that were judged.
func (s *Server) connect(ctx context.Context, name firewall.Name, port uint16, d firewall.Decision) (_ *net.TCPConn, _ netip.AddrPort, r *refusal) {
	defer func() {
		if p := recover(); p != nil {
			r = fault(contain.New(p))
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	addrs, err := s.Resolver.Resolve(ctx, name)
	if r := resolveFault(err); r != nil {
		return nil, netip.AddrPort{}, r
	}
	if ok, detail := firewall.JudgeAnswer(d, addrs); !ok {
		return nil, netip.AddrPort{}, addressRefused(detail)
	}
	if r := s.own.refuse(addrs); r != nil {
		return nil, netip.AddrPort{}, r
	}
	if d.Via != "" {
		return s.connectVia(ctx, name, addrs, port, d)
	}
	return s.dialAny(ctx, addrs, port)
}

// A dialled is how one try to connect ended.
type dialled struct {
	conn *net.TCPConn
	addr netip.AddrPort
	err  error
}

// dialAny connects to one of the addresses that have been judged. It tries them
// one after the other, IPv6 and IPv4 in turn, and does not wait longer than
// dialStagger for one before it tries the next as well (RFC 8305, section 5). It
// returns once every try has ended.
func (s *Server) dialAny(ctx context.Context, addrs []netip.Addr, port uint16) (*net.TCPConn, netip.AddrPort, *refusal) {
	addrs = interleave(addrs)
	addrs = addrs[:min(len(addrs), maxDials)]
	if len(addrs) == 1 {
		addr := netip.AddrPortFrom(addrs[0], port)
		conn, err := s.dial(ctx, addr)
		return settled(dialled{conn, addr, err})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialled, len(addrs))
	var won, last dialled
	tried, open := 0, 0
	more := func() bool { return tried < len(addrs) && won.conn == nil && ctx.Err() == nil }
	next := time.NewTimer(0) // fires whenever there are more
	defer next.Stop()
	for open > 0 || more() {
		select {
		case <-next.C:
			if more() {
				go s.try(ctx, netip.AddrPortFrom(addrs[tried], port), results)
				tried, open = tried+1, open+1
				next.Reset(dialStagger)
			}
		case r := <-results:
			open--
			switch {
			case r.conn == nil:
				last = r
				next.Reset(0)
			case won.conn == nil:
				won = r
				cancel() // ends the other tries
			default:
				reset(r.conn)
			}
		}
	}
	if won.conn != nil {
		return settled(won)
	}
	if last.err == nil {
		last.err = ctx.Err()
	}
	return settled(last)
}

// settled is what has become of dialling in the end.
func settled(d dialled) (*net.TCPConn, netip.AddrPort, *refusal) {
	switch {
	case d.err != nil:
		return nil, d.addr, dialFault(d.err)
	case isSelf(addrPort(d.conn.LocalAddr()).Addr(), d.addr.Addr()):
		reset(d.conn)
		return nil, d.addr, addressRefused(d.addr.Addr().String() + " is the gate's own address")
	}
	return d.conn, d.addr, nil
}

func (s *Server) try(ctx context.Context, addr netip.AddrPort, results chan<- dialled) {
	d := dialled{addr: addr}
	defer func() { results <- d }()
	defer contain.Error(&d.err)
	d.conn, d.err = s.dial(ctx, addr)
}

// interleave orders addresses for dialling: the families in turn, IPv6 first
// (RFC 8305, section 4), each in the order of the answer.
func interleave(addrs []netip.Addr) []netip.Addr {
	var families [2][]netip.Addr
	for _, a := range addrs {
		i := 0
		if a.Is4() {
			i = 1
		}
		families[i] = append(families[i], a)
	}
	ordered := make([]netip.Addr, 0, len(addrs))
	for i := 0; len(ordered) < len(addrs); i++ {
		for _, f := range families {
			if i < len(f) {
				ordered = append(ordered, f[i])
			}
		}
	}
	return ordered
}

func (s *Server) dial(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
	if s.Dial != nil {
		return s.Dial(ctx, addr)
	}
	if s.route != nil {
		addr = s.route(addr)
	}
	// DialTCP would bind even without a local address, and a bound port serves
	// one upstream at a time: all tunnels together would share 28,000 of them.
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, "tcp", addr.String()) // its errors name the address
	if err != nil {
		return nil, err
	}
	return conn.(*net.TCPConn), nil
}

func resolveFault(err error) *refusal {
	var refused *resolve.RefusedError
	switch {
	case err == nil:
		return nil
	case fault(err) != nil:
		return fault(err)
	case errors.As(err, &refused):
		return addressRefused(refused.Detail)
	default:
		return &refusal{reason: firewall.ReasonResolve, detail: firewall.Escape(err.Error(), 200), alert: alertInternalError, status: 502}
	}
}

func addressRefused(detail string) *refusal {
	return &refusal{reason: firewall.ReasonAddress, detail: detail, alert: alertAccessDenied, status: 403}
}

// Open returns how many connections of clients are open, over both services.
func (s *Server) Open() int64 { return s.open.Load() }

// keepOpen lifts the deadline of a client whose request stands and lets the
// kernel find out when it is gone.
func keepOpen(c *net.TCPConn) error {
	if err := c.SetDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lifting a deadline: %w", err)
	}
	if err := c.SetKeepAliveConfig(keepAlive); err != nil {
		return fmt.Errorf("setting keep-alive: %w", err)
	}
	return nil
}
