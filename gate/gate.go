// Package gate is the daemon between cells and the world. It leases cells: for
// each it opens a DNS server (dnsgate) and a tunnel (sniproxy) on its own
// address in the cell, both under the one policy that the lease names, and it
// closes them and cuts every connection when the lease ends. An unleased cell
// has nobody listening, and a gate that has just started has no leases.
//
// It is told what to do over HTTP on a unix socket; the types and a client are
// in package control. Each decision is a line of the log, or shares one where a
// sandbox has itself refused without end, counts into the receipt of its lease, and
// is streamed to whoever asks; a slow reader loses records of the stream, never of
// the receipt, and holds up nobody. While decisions cannot be written, the gate
// denies.
//
//	d := &gate.Daemon{Allowlist: file, Resolver: resolver, Log: log}
//	err := d.Serve(ctx, listener) // returns when ctx has ended and every cell is closed
package gate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sallyport/dnsgate"
	"sallyport/firewall/allowlist"
	"sallyport/gate/control"
	"sallyport/gate/decisionlog"
	"sallyport/gate/metrics"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
)

// The bounds of the control API.
const (
	maxBody       = 64 << 10 // bytes
	maxHeader     = 16 << 10 // bytes
	headerTimeout = 5 * time.Second
	callTimeout   = time.Minute // to read, serve and answer a call; a stream has none
	idleTimeout   = time.Minute
	stopTimeout   = 5 * time.Second // for the calls that are under way when the gate stops
)

// A Daemon is the gate. Its fields must not change while Serve runs.
type Daemon struct {
	// Allowlist has the policies that leases may name. Required.
	Allowlist *allowlist.File
	// Load reads the policies anew; if nil, they cannot be reloaded.
	Load func() (*allowlist.File, error)
	// Watch, if not nil, runs as long as Serve does and calls reload whenever the
	// policies may have changed.
	Watch func(ctx context.Context, reload func())
	// Resolver finds the addresses of allowed names. Required.
	Resolver reach.Resolver
	// Proxy finds the proxies that entries of the allowlist may name; if nil, there
	// are none.
	Proxy func(name string) (reach.Proxy, bool)
	// Cache is the size of the resolver cache of each cell, where the Resolver is a
	// resolve.Lookuper, too; the zero value is none.
	Cache CacheSize
	// Parked is the account of what stands in the connections of all cells; if nil, one
	// of admission.DefaultParked bytes.
	Parked *admission.Parked
	// Metrics count what the gate does, for its control API and, if it is not nil,
	// for MetricsOn, which Serve closes. If nil, new ones.
	Metrics   *metrics.Metrics
	MetricsOn net.Listener
	// File, if not nil, gets the decisions as well; while it cannot write them, the
	// gate denies. The caller closes it after Serve.
	File *decisionlog.File
	// Log gets the decisions and the gate's own doings. Required.
	Log *slog.Logger
	// Decisions gets the decisions as lines like those of Log, several in one call
	// of Write; if nil, Log gets them. It may be what Log writes to, if a call of
	// its Write cannot be interrupted by another, as with files. While it fails, the
	// gate denies.
	Decisions io.Writer
	// Version and Warnings are shown by the health call.
	Version  string
	Warnings []string

	// Tests set these. The zero ports stand for the real ones; route has dials go
	// elsewhere.
	ports ports
	route func(netip.AddrPort) netip.AddrPort
}

// ports are where the gate listens in a cell. Whatever they are, the policy is
// asked about 443 and 80.
type ports struct{ dns, tls, http uint16 }

var realPorts = ports{dns: 53, tls: 443, http: 80}

// Serve answers the control API on ln, which it closes, until ctx ends or ln
// fails. When it returns, every cell is closed. It returns nil if it was ctx
// that ended and every decision is written.
func (d *Daemon) Serve(ctx context.Context, ln net.Listener) error {
	defer ln.Close()
	if d.MetricsOn != nil {
		defer d.MetricsOn.Close()
	}
	if d.Allowlist == nil || d.Resolver == nil || d.Log == nil {
		return errors.New("gate: Allowlist, Resolver and Log are required")
	}
	s := newServer(ctx, d)
	defer s.cancel()
	return s.run(ctx, ln)
}

// run serves the control API and, when ctx or ln has ended, ends everything.
func (s *server) run(ctx context.Context, ln net.Listener) error {
	var err error
	if s.names, err = dnsgate.NewLoop(); err != nil {
		return err
	}
	defer s.names.Close() // every lease has ended by then
	web := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       callTimeout,
		WriteTimeout:      callTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
		// Its end ends the streams, without the line that says they are complete.
		BaseContext: func(net.Listener) context.Context { return s.ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(ln) }()
	defer s.serveMetrics()()
	h := s.health()
	s.Log.Info("gate started", "instance", h.Instance, "version", h.Version,
		"digest", h.Digest, "policies", h.Policies, "warnings", h.Warnings)

	var watching sync.WaitGroup
	if s.Watch != nil {
		watching.Go(func() { s.Watch(s.ctx, func() { _, _ = s.reload() }) }) // it logs its errors
	}
	defer watching.Wait()

	select {
	case <-ctx.Done():
	case err := <-failed:
		failed <- fmt.Errorf("gate: serving the control socket: %w", err)
	}
	s.cancel()
	s.stop()
	lost := s.decisions.Close()
	end, done := context.WithTimeout(context.Background(), stopTimeout)
	defer done()
	if web.Shutdown(end) != nil {
		web.Close()
	}
	err = <-failed
	s.Log.Info("gate stopped", "instance", s.instance)
	if ctx.Err() != nil {
		return lost
	}
	return errors.Join(err, lost)
}

// A server is the state of one Serve.
type server struct {
	*Daemon
	ctx       context.Context // its end is that of every lease
	cancel    context.CancelFunc
	instance  string
	edition   atomic.Pointer[edition]
	reloads   sync.Mutex // held while the policies are read anew
	reloaded  reloadCounts
	all       *decisionlog.Journal // the decisions of all cells
	decisions *decisionlog.Writer
	cells     atomic.Pointer[cellRanges] // where no tunnel leads
	names     *dnsgate.Loop              // of all leases

	mu       sync.Mutex // guards what follows
	stopping bool
	refused  *refusedFile // nil if the file is in force
	leases   map[string]*lease
	runs     map[string]*runJournal
	serving  sync.WaitGroup // the leases
}

func newServer(ctx context.Context, d *Daemon) *server {
	own := *d
	if own.ports == (ports{}) {
		own.ports = realPorts
	}
	if own.Metrics == nil {
		own.Metrics = metrics.New()
	}
	if own.Parked == nil {
		own.Parked = admission.NewParked(admission.DefaultParked)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &server{
		Daemon: &own, ctx: ctx, cancel: cancel, instance: rand.Text(), all: decisionlog.NewJournal(allRecords),
		decisions: decisionlog.NewWriter(d.Decisions, d.Log),
		leases:    make(map[string]*lease), runs: make(map[string]*runJournal),
	}
	s.edition.Store(&edition{File: d.Allowlist, generation: 1, since: time.Now()})
	s.countCells()
	own.Metrics.Report(s.state)
	return s
}

// stop waits for the leases, whose context has ended, and admits no further one.
func (s *server) stop() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	s.serving.Wait()
}

func (s *server) health() control.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.edition.Load()
	status, warnings := control.StatusOK, slices.Clone(s.Warnings)
	unwritable := func(where string) {
		status = control.StatusDenying
		warnings = slices.Insert(warnings, 0, "decisions cannot be written to "+where+": everything is denied until they can")
	}
	if s.File != nil && !s.File.Ready() {
		unwritable(s.File.Path())
	}
	if !s.decisions.Ready() {
		unwritable("the log")
	}
	for _, w := range e.Warnings() {
		warnings = append(warnings, w.Error())
	}
	digests, bounded := map[string]string{}, []string{}
	for _, name := range e.Names() {
		p, _ := e.Policy(name)
		digests[name] = p.Digest()
		if !p.Any() {
			bounded = append(bounded, name)
		}
	}
	return control.Health{
		Status: status, Instance: s.instance, Digest: e.Digest(), Policies: e.Names(), Digests: digests, Bounded: bounded, Generation: e.generation,
		Allowlist: s.allowlist(e), Cells: len(s.leases), Version: s.Version, Warnings: warnings,
	}
}

// state is what the metrics show of the server.
func (s *server) state() metrics.State {
	now := metrics.State{
		Stalled: s.Parked.Held(), StalledLimit: s.Parked.Limit(),
		Reloads: s.reloaded.good.Load(), RefusedReloads: s.reloaded.bad.Load(), Faults: s.decisions.Faults(),
	}
	if s.File != nil {
		now.Faults += s.File.Faults()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now.Leases, now.Current = len(s.leases), s.refused == nil
	for _, l := range s.leases {
		now.Connections += l.tunnel.Open()
	}
	return now
}
