package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"sallyport/firewall"
)

// Bounds on reaching an upstream. There are more addresses than tries in some
// answers; each try may take what is left, the first ones at most dialTimeout.
const (
	connectTimeout = 20 * time.Second // to resolve and to dial, in all
	dialTimeout    = 10 * time.Second
	maxDials       = 4
)

// keepAlive finds a peer that vanished within about two minutes. No tunnel has
// an idle time-out: a model may think for long before its next token.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// A RefusedAnswerError says that a name must not be followed to where DNS leads.
type RefusedAnswerError struct {
	Detail string // for a person; holds no unescaped input
}

func (e *RefusedAnswerError) Error() string { return "refused answer: " + e.Detail }

// connect resolves the name that d allows, has the whole answer judged and dials
// one of the addresses that were judged.
func (s *Server) connect(ctx context.Context, name firewall.Name, port uint16, d firewall.Decision) (*net.TCPConn, netip.AddrPort, *refusal) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	addrs, err := s.Resolver.Resolve(ctx, name)
	if r := resolveFault(err); r != nil {
		return nil, netip.AddrPort{}, r
	}
	if ok, detail := firewall.JudgeAnswer(d, addrs); !ok {
		return nil, netip.AddrPort{}, addressRefused(detail)
	}
	return s.dialAny(ctx, addrs, port)
}

// dialAny tries addresses that have been judged, IPv4 first.
func (s *Server) dialAny(ctx context.Context, addrs []netip.Addr, port uint16) (*net.TCPConn, netip.AddrPort, *refusal) {
	addrs = slices.Clone(addrs)
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	addrs = addrs[:min(len(addrs), maxDials)]
	var last netip.AddrPort
	var err error
	for _, a := range addrs {
		last = netip.AddrPortFrom(a, port)
		var up *net.TCPConn
		if up, err = s.dial(ctx, last); err != nil {
			if ctx.Err() != nil {
				break
			}
			continue
		}
		if isSelf(addrPort(up.LocalAddr()).Addr(), a) {
			reset(up)
			return nil, last, addressRefused(a.String() + " is the gate's own address")
		}
		return up, last, nil
	}
	return nil, last, &refusal{reason: firewall.ReasonDial, detail: firewall.Escape(err.Error(), 200), alert: alertInternalError, status: 502}
}

func (s *Server) dial(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
	if s.Dial != nil {
		return s.Dial(ctx, addr)
	}
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	return d.DialTCP(ctx, "tcp", netip.AddrPort{}, addr) // its errors name the address
}

// isSelf reports whether a connection between two addresses leads back to the
// machine that it comes from, by an address that the floor takes for a host of
// the internet: dialling one of its own addresses, the kernel uses it as the
// source as well. Private ones need no such look, since only an entry of the
// allowlist admits them.
func isSelf(local, remote netip.Addr) bool {
	public, _ := firewall.JudgeAddr(remote)
	return local == remote && public
}

func resolveFault(err error) *refusal {
	var refused *RefusedAnswerError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return addressRefused(refused.Detail)
	default:
		return &refusal{reason: firewall.ReasonResolve, detail: firewall.Escape(err.Error(), 200), alert: alertInternalError, status: 502}
	}
}

func addressRefused(detail string) *refusal {
	return &refusal{reason: firewall.ReasonAddress, detail: detail, alert: alertAccessDenied, status: 403}
}

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
