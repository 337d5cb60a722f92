// Package sniproxy is the way out of one cell: a tunnel for TLS that is judged
// by the server name in the ClientHello, and a forwarder for plain HTTP that
// judges every request. Neither holds a key or looks inside TLS.
//
// For each TLS connection (ServeTLS) and each HTTP request (ServeHTTP1) a Server
// asks its policy about the name, resolves the name, has every address of the
// answer judged, dials the very address that was judged and leaves exactly one
// decision record. Whatever it cannot read with certainty it refuses: a refused
// name is never looked up, and nothing that a client sent leaves before the
// verdict.
//
// What the first ClientHello cannot show stays a residual: a client may ask an
// allowed server for another host inside the encrypted stream, or in the second
// hello that a retry request asks for, which matters where one address serves
// many tenants. An encrypted ClientHello would hide the name altogether, so it
// is refused unless the policy passes it. Real and GREASE ones are made to look
// the same (draft-ietf-tls-esni, section 6.2), so both are refused; a browser
// that sends GREASE needs a policy with `ech: pass`.
//
// The caller makes the listeners:
//
//	s := &sniproxy.Server{Policy: policy, Prefix: cell, Resolver: resolver, Record: ledger.Add}
//	err := s.ServeTLS(ctx, listener) // returns when ctx ends and every tunnel is cut
package sniproxy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// The ports that the two services stand for, whatever port their listener has:
// names are judged for them and upstreams are dialled on them.
const (
	portTLS  = 443
	portHTTP = 80
)

// The defaults of a Server.
const (
	defaultHelloTimeout = 10 * time.Second
	defaultMaxConns     = 512
)

// A Server forwards the TLS connections and HTTP requests of one cell. Its
// fields must not change once it serves. The zero value serves nothing.
type Server struct {
	// Policy judges names; nil denies everything.
	Policy *firewall.Policy
	// Current, if not nil, gives the policy for each decision in place of Policy;
	// PolicyChanged must be called after it began to give another one, but not for
	// one that firewall.Policy.Closed has made or unmade: that refuses what is new,
	// and cuts nothing.
	Current func() *firewall.Policy
	// Meter counts what the run uses of the policy's budget; if nil, one of its own.
	// Servers of one run share one, those of different runs never do.
	Meter *account.Meter
	// Page is the host that the gate itself serves, if any.
	Page Page
	// Prefix is the cell's subnet: clients outside it are refused, and the zero
	// Prefix holds nobody.
	Prefix netip.Prefix
	// Resolver looks up allowed names. Required.
	Resolver reach.Resolver
	// Proxy finds the proxy that a decision names; a host that is to be reached by
	// way of one that it does not find is not reached. If nil, it finds none.
	Proxy func(name string) (reach.Proxy, bool)
	// Record gets one decision for each TLS connection and HTTP request, without
	// the fields Run, Cell and Policy, and without Digest where no policy was asked; connections that are not let in, for
	// their number or for where they come from, are tallied (account.Tally). It is called from many goroutines.
	// The record of a refusal comes before the client learns of it; that of a
	// tunnel or request comes when it ends, and all come before Serve returns.
	// Required.
	Record func(account.Record)
	// Flush, if not nil, is called after Record, once for several calls of it where
	// many connections end at the same time; records are delivered when it returns.
	Flush func()
	// Route, if not nil, has a dial go elsewhere, at the last moment. It is for tests.
	Route func(netip.AddrPort) netip.AddrPort
	// Log gets faults of the gate, never decisions; if nil, nothing is logged.
	Log *slog.Logger
	// HelloTimeout is how long a client may take from its connection to the end
	// of its ClientHello, or over one HTTP request head; 0 means 10 s.
	HelloTimeout time.Duration
	// MaxConns bounds the connections that are open at once over both services;
	// further ones are closed. 0 means 512.
	MaxConns int

	// Parked is the account of what stands in connections, for all servers of a gate;
	// if nil, one of its own of DefaultParked bytes.
	Parked *Parked

	bodyIdle time.Duration // 0 is defaultBodyIdle; the tests have no minute

	metered sync.Once // fills in Meter; see meter
	parks   sync.Once // fills in Parked; see parked

	open atomic.Int64 // connections now
	held atomic.Int64 // bytes that hellos and heads hold now; see reserve

	parkedBytes atomic.Int64 // of the account of parked bytes

	flows flows
}

// ServeTLS tunnels the connections that ln accepts to port 443 of the host that
// each ClientHello names; ln must be a TCP listener of the system's, made with
// socket.ClientOptions. When ctx ends it closes ln, cuts every connection, waits for all
// that it started and returns nil; an error means that ln cannot be served.
func (s *Server) ServeTLS(ctx context.Context, ln net.Listener) error {
	v := &service{Server: s, kind: account.KindTLS, port: portTLS}
	v.start = v.startTunnel
	return v.serve(ctx, ln)
}

// ServeHTTP1 forwards the HTTP/1.1 requests of the connections that ln accepts
// to port 80 of the host that each request names. It is called and ends as ServeTLS.
func (s *Server) ServeHTTP1(ctx context.Context, ln net.Listener) error {
	v := &service{Server: s, kind: account.KindHTTP, port: portHTTP}
	v.start = v.startHTTP
	return v.serve(ctx, ln)
}

// A service is one of the two at work: its kind of connection and those that
// are open.
type service struct {
	*Server
	kind account.Kind
	port uint16

	start    func(fd int, rec account.Record) // on the loop, for a connection that is let in
	ctx      context.Context
	loop     *worker
	dialer   reach.Dialer
	admitted sync.WaitGroup // connections, until they are recorded and gone

	// The loop's, of the one for TLS.
	tunnels tunnels
	patrol  patrol
	due     tunnelQueue
	pipes   int // in use
	sweeper sweeper

	// swept is what the service has on the account of parked bytes; the loop's, of the
	// one for HTTP guarded by mu.
	swept int64

	mu sync.Mutex // guards what follows
	// Of the one for HTTP.
	conns    map[*net.TCPConn]*httpConn // clients and upstreams
	sweeping bool
	sweeps   sync.WaitGroup
	ended    bool
	// outside are the tallies of connections that were not let in, by the detail of
	// their refusal; the gate's own words, of which there are few.
	outside map[string]*account.Tally
}

// prepare makes what a service has on its loop.
func (v *service) prepare() {
	v.dialer = reach.Dialer{Resolver: v.Resolver, Proxy: v.Proxy, Route: v.Route}
	v.patrol.v, v.patrol.timer.Owner = v, &v.patrol
	v.sweeper.v, v.sweeper.timer.Owner = v, &v.sweeper
	v.conns = make(map[*net.TCPConn]*httpConn)
}

// check refuses to serve without what is required.
func (s *Server) check() error {
	if s.Resolver == nil || s.Record == nil {
		return errors.New("sniproxy: a server needs a resolver and a recorder")
	}
	return nil
}

// track makes c, of h, one that cut closes, and closes it at once if cut was called.
func (v *service) track(c *net.TCPConn, h *httpConn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		socket.ResetConn(c)
		return
	}
	v.conns[c] = h
	if !v.sweeping {
		v.sweeping = true
		v.sweeps.Go(v.sweepHTTP)
	}
}

// drop closes c and forgets it.
func (v *service) drop(c *net.TCPConn) {
	c.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.conns, c)
}

// cutConns resets every tracked connection, now and from now on.
func (v *service) cutConns() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = true
	for c, h := range v.conns {
		h.cut(c)
	}
}

// finish completes a record and delivers it; r is nil where nothing was refused.
func (v *service) finish(rec *account.Record, r *refusal.Refusal) {
	v.note(rec, r)
	v.flush()
}

// note is finish for callers that flush themselves.
func (v *service) note(rec *account.Record, r *refusal.Refusal) {
	if r != nil {
		if rec.Verdict == firewall.Allow && rec.BytesUp|rec.BytesDown != 0 {
			rec.Allowed = rec.Reason
		}
		rec.Verdict, rec.Reason, rec.Detail = firewall.Deny, r.Reason, r.Detail
		if r.Fault != nil {
			v.Panicked(r.Fault)
		}
	}
	rec.DurationMS = time.Since(rec.Time).Milliseconds()
	v.Record(*rec)
}

func (v *service) flush() {
	if v.Flush != nil {
		v.Flush()
	}
}

// judged notes in a record what the policy said: by the time of its end another one
// may be in force.
func judged(rec *account.Record, p *firewall.Policy, d firewall.Decision) {
	rec.Verdict, rec.Reason, rec.Rule, rec.Line, rec.Detail = d.Verdict, d.Reason, d.Rule, d.Line, d.Detail
	rec.Digest = p.Digest()
}

func (v *service) Panicked(err error) { v.warn("the handling of a connection panicked", err) }

func (v *service) warn(msg string, err error) {
	if v.Log == nil {
		return
	}
	var p *contain.Panic
	if errors.As(err, &p) {
		err = errors.New(p.Words())
	}
	v.Log.Warn(msg, "service", v.kind, "error", err)
}

func (s *Server) helloTimeout() time.Duration {
	if s.HelloTimeout > 0 {
		return s.HelloTimeout
	}
	return defaultHelloTimeout
}
