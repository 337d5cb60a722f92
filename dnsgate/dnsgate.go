// Package dnsgate is the DNS server of one cell. It never forwards: the address
// of an allowed name is the gate's own address in the cell, so that the client
// dials the tunnel, and every other name does not exist. No byte of a query
// leaves the gate, whatever a sandbox writes into the labels.
//
// What it answers, for class IN and opcode QUERY:
//
//   - an allowed name: A with the gate's address; any other type NODATA, so that
//     there is no second way (AAAA) and no key for an encrypted hello (HTTPS);
//   - any other name: NXDOMAIN for every type, with a SOA that makes clients
//     forget it soon;
//   - zone transfers, other classes, other opcodes and the root: REFUSED;
//   - what is not one well-formed question: FORMERR, or nothing at all where
//     the header cannot be read or claims to be an answer.
//
// Clients outside the cell's prefix get nothing. Each query makes one
// account.Record; a flood, be it of no queries at all, is dropped and counted in at
// most one record a second.
// Its DNS records have port 0: the port is judged when the tunnel is dialled.
package dnsgate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
)

// The bounds of one cell where Server does not say otherwise.
const (
	// DefaultTTL is short: a policy may change while a sandbox lives.
	DefaultTTL = 30 // seconds
	// DefaultRate and DefaultBurst bound the queries that are answered. Package
	// managers ask some hundred names at a time, each for A and AAAA, without a
	// cache; ten times that is no use to anybody.
	DefaultRate  = 500 // a second
	DefaultBurst = 2000
	// DefaultMaxConns bounds the open TCP connections, DefaultMaxQueries the
	// queries on one of them.
	DefaultMaxConns   = 64
	DefaultMaxQueries = 128
	// DefaultIdle is the time for one query on TCP to arrive and be answered,
	// DefaultTotal the life of a connection.
	DefaultIdle  = 5 * time.Second
	DefaultTotal = 60 * time.Second
)

// A Server answers the queries of one cell. Its fields must not change while
// Serve runs.
type Server struct {
	// Policy decides; nil denies every name.
	Policy *firewall.Policy
	// Current, if not nil, gives the policy for each query in place of Policy.
	Current func() *firewall.Policy
	// Meter counts the queries on the run's budget; if nil, one of its own that has
	// the budget which the policy has when Serve begins.
	Meter *account.Meter
	// Page is a name that every policy lets a client resolve, since the gate
	// itself serves it; the zero Name is none.
	Page firewall.Name
	// Answer is the gate's IPv4 address in the cell. Required.
	Answer netip.Addr
	// Prefix is the cell's subnet: clients outside it are not answered. Required.
	Prefix netip.Prefix
	// Record gets every decision. It is called by several goroutines and must not
	// block for long. Required, unless there is Deliver.
	Record func(account.Record)
	// Flush, if not nil, makes the records durable that Record has had. It is
	// called, by several goroutines, before the answers that they are about are
	// sent. What it fails for is not answered.
	Flush func() error
	// Deliver, if not nil, takes the place of Record and Flush: it gets the
	// decisions about the queries that arrived together. It may change the records,
	// which are, with the text of Host, only valid until it returns.
	Deliver func([]account.Record) error
	// Loop answers on UDP, for this cell and others; if nil, one of its own.
	Loop *Loop
	// Log gets the gate's own faults, never queries. Required.
	Log *slog.Logger

	// TTL is that of an answer, in seconds. The following are as the constants
	// of the same name say. A value of 0 stands for the default.
	TTL        uint32
	Rate       rate.Limit
	Burst      int
	MaxConns   int
	MaxQueries int
	Idle       time.Duration
	Total      time.Duration
}

// Serve answers queries on pc and ln, which it closes, until ctx ends or one of
// them fails. When it returns, everything that it started has ended and every
// record was delivered. It returns nil if it was ctx that ended.
func (s *Server) Serve(ctx context.Context, pc *net.UDPConn, ln net.Listener) error {
	defer pc.Close()
	defer ln.Close()
	c, err := s.cell()
	if err != nil {
		return err
	}
	defer c.endTallies()
	loop := s.Loop
	if loop == nil {
		if loop, err = NewLoop(); err != nil {
			return err
		}
		defer loop.Close()
	}
	group, inner := errgroup.WithContext(ctx)
	stop := context.AfterFunc(inner, func() {
		pc.Close()
		ln.Close()
	})
	defer stop()
	group.Go(func() error { return loop.serve(inner, c, pc) })
	group.Go(func() error { return c.serveTCP(inner, ln) })
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// policy is the one of this moment.
func (s *Server) policy() *firewall.Policy {
	if s.Current != nil {
		return s.Current()
	}
	return s.Policy
}

// decide judges a name by the policy as it is now, whose digest it returns: by the
// time of the record another one may be in force.
func (s *Server) decide(name firewall.Name) (d firewall.Decision, digest string) {
	if name == s.Page && !name.IsZero() {
		return firewall.Decision{Verdict: firewall.Allow, Reason: firewall.ReasonPolicyPage}, ""
	}
	p := s.policy()
	return p.DecideDNS(name), p.Digest()
}

// A cell is the state of one Serve.
type cell struct {
	Server
	limiter *rate.Limiter

	rawA, rawSOA []byte // the answer without its owner, the SOA
	general      bool   // tests set it: every query takes the general way

	failing atomic.Bool // the last records could not be delivered

	foreign, flood, spent, conns, slow, pipelined *account.Tally
}

// cell checks the fields, fills in the defaults and makes the state of a Serve.
func (s *Server) cell() (*cell, error) {
	switch {
	case !s.Answer.Is4():
		return nil, fmt.Errorf("dnsgate: the answer %v is not an IPv4 address", s.Answer)
	case !s.Prefix.IsValid():
		return nil, errors.New("dnsgate: no prefix of clients")
	case s.Record == nil && s.Deliver == nil, s.Log == nil:
		return nil, errors.New("dnsgate: Record or Deliver, and Log are required")
	}
	c := &cell{Server: *s}
	c.TTL = orDefault(s.TTL, DefaultTTL)
	c.Rate = orDefault(s.Rate, DefaultRate)
	c.Burst = orDefault(s.Burst, DefaultBurst)
	c.MaxConns = orDefault(s.MaxConns, DefaultMaxConns)
	c.MaxQueries = orDefault(s.MaxQueries, DefaultMaxQueries)
	c.Idle = orDefault(s.Idle, DefaultIdle)
	c.Total = orDefault(s.Total, DefaultTotal)
	c.limiter = rate.NewLimiter(c.Rate, c.Burst)
	if c.Meter == nil {
		c.Meter = account.NewMeter(c.policy().Budget())
	}
	a, ns := c.a(), soa()
	var err error
	if c.rawA, err = rawRecord(&a, 1); err != nil {
		return nil, err
	}
	if c.rawSOA, err = rawRecord(&ns, 0); err != nil {
		return nil, err
	}

	c.foreign = c.newTally(firewall.ReasonForeignClient, "from outside the cell")
	c.flood = c.newTally(firewall.ReasonLimit, fmt.Sprintf("dropped: over %v queries a second", c.Rate))
	c.spent = c.newTally(firewall.ReasonBudget, "dropped, over budget: queriesPerSecond")
	c.conns = c.newTally(firewall.ReasonLimit, fmt.Sprintf("refused: %d TCP connections are open", c.MaxConns))
	c.slow = c.newTally(firewall.ReasonLimit, "cut: a TCP query did not arrive in time")
	c.pipelined = c.newTally(firewall.ReasonLimit, fmt.Sprintf("cut: over %d queries on one TCP connection", c.MaxQueries))
	return c, nil
}

// deliver delivers records and reports whether the replies that they are about
// may be sent: what cannot be recorded is not answered.
func (c *cell) deliver(records []account.Record) (ok bool) {
	defer contain.With(func(p *contain.Panic) {
		c.Panicked(p)
		ok = false
	})
	var err error
	if c.Deliver != nil {
		err = c.Deliver(records)
	} else {
		for _, r := range records {
			r.Host = strings.Clone(r.Host)
			c.Record(r)
		}
		if c.Flush != nil {
			err = c.Flush()
		}
	}
	if failed := err != nil; failed != c.failing.Load() && failed != c.failing.Swap(failed) && failed {
		c.Log.Error("dnsgate: no answers while their records cannot be written", "error", err)
	}
	return err == nil
}

// Panicked logs a panic that was contained: a fault over what one cell sends must not
// end the gate of all the others. What was under way gets no answer.
func (c *cell) Panicked(err error) {
	var p *contain.Panic
	if errors.As(err, &p) {
		c.Log.Error("dnsgate: panic while answering", "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
	}
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}
