package gate

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"sallyport/dnsgate"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
	"sallyport/gate/decisionlog"
	"sallyport/gate/listener"
	"sallyport/gate/page"
	"sallyport/internal/contain"
	"sallyport/sniproxy"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/forward"
	"sallyport/sniproxy/reach"
)

// A lease is a cell that the gate serves.
type lease struct {
	control.Lease
	id      string
	policy  atomic.Pointer[firewall.Policy] // the one of now; nil, which denies, if it is gone
	tunnel  *sniproxy.Server
	ledger  *account.Ledger
	server  *server
	journal *decisionlog.Journal // of the run
	limit   decisionlog.Limit

	cancel context.CancelFunc
	// ended is closed when nothing of the lease runs any more and all its records
	// are delivered.
	ended chan struct{}
}

// These say what identifiers may look like; both end up in logs and in paths.
var (
	validCell = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)
	validRun  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)
)

// The widest and the narrowest prefix of a cell: a wide one would make the check
// of a client's address worthless, a narrow one has no room for two hosts.
const (
	minPrefixBits = 24
	maxPrefixBits = 30
)

// checkLease refuses what cannot be a lease.
func checkLease(id string, l control.Lease) error {
	bad := func(format string, args ...any) error {
		return refuse(http.StatusBadRequest, control.CodeInvalid, format, args...)
	}
	switch {
	case !validCell.MatchString(id):
		return bad("the cell's id must match %s", validCell)
	case !validRun.MatchString(l.Run):
		return bad("run must match %s", validRun)
	case l.Policy == "":
		return bad("policy is missing")
	case !l.Address.Is4():
		return bad("address must be an IPv4 address")
	case !l.Prefix.IsValid() || l.Prefix != l.Prefix.Masked():
		return bad("prefix must be a subnet, without bits of a host")
	case l.Prefix.Bits() < minPrefixBits || l.Prefix.Bits() > maxPrefixBits:
		return bad("prefix must have /%d to /%d", minPrefixBits, maxPrefixBits)
	case !l.Prefix.Contains(l.Address):
		return bad("address %v is outside of prefix %v", l.Address, l.Prefix)
	case l.Pool.IsValid() && (l.Pool != l.Pool.Masked() || l.Pool.Bits() > l.Prefix.Bits() || !l.Pool.Contains(l.Address)):
		return bad("pool %v is not a range that prefix %v is part of", l.Pool, l.Prefix)
	}
	return nil
}

// open leases a cell: its listeners are up, or nothing is.
func (s *server) open(id string, want control.Lease) (*lease, error) {
	if err := checkLease(id, want); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	policies := s.edition.Load()
	policy, ok := policies.Policy(want.Policy)
	if !ok {
		return nil, refuse(http.StatusUnprocessableEntity, control.CodeNoPolicy,
			"no policy %q in the allowlist; there are %s", want.Policy, strings.Join(policies.Names(), ", "))
	}
	if err := s.admit(id, want); err != nil {
		return nil, err
	}
	sockets, err := s.listen(want.Address)
	if err != nil {
		return nil, refuse(http.StatusConflict, control.CodeListen, "%v", err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	l := s.newLease(id, want, policy, cancel)
	s.leases[id] = l
	s.countCells()
	s.serving.Go(func() {
		// Not under the lock, which a line that nobody reads would keep from all.
		s.Log.Info("cell leased", "cell", id, "run", l.Run, "policy", policy.Name(), "digest", policy.Digest(),
			"address", l.Address.String(), "prefix", l.Prefix.String())
		s.serve(ctx, l, sockets)
	})
	return l, nil
}

// newLease makes a lease that is not yet served. s.mu is held.
func (s *server) newLease(id string, want control.Lease, policy *firewall.Policy, cancel context.CancelFunc) *lease {
	l := &lease{
		Lease: want, id: id, ledger: account.NewLedger(policy.Name(), policy.Digest()),
		server: s, journal: s.joinRun(want.Run), cancel: cancel, ended: make(chan struct{}),
	}
	l.policy.Store(policy)
	l.limit.Put = l.putShared
	l.tunnel = &sniproxy.Server{
		Cell: admission.Cell{
			Current: l.current, Prefix: l.Prefix, Record: l.record, Flush: l.flush,
			Meter: account.NewMeter(policy.Budget()), Parked: s.Parked, Log: s.Log.With("cell", id),
		},
		Dialer: reach.Dialer{Proxy: s.Proxy, Route: s.route},
		Page:   forward.Page{Name: page.Name, Answer: l.page().Answer},
	}

	return l
}

// page answers the cell's questions about its run.
func (l *lease) page() *page.Page {
	return page.New(page.Page{
		PolicyName: l.Lease.Policy, Policy: l.policy.Load, Latest: l.journal.Latest,
		Generation: func() uint64 { return l.server.edition.Load().generation },
	})
}

// listen opens the sockets of a cell on the gate's address in it.
func (s *server) listen(addr netip.Addr) (*listener.Cell, error) {
	return listener.OpenCell(addr, listener.Ports{DNS: s.ports.dns, TLS: s.ports.tls, HTTP: s.ports.http}, s.Log)
}

// admit refuses a lease that is in the way of another. s.mu is held.
func (s *server) admit(id string, want control.Lease) error {
	if s.stopping || s.ctx.Err() != nil {
		return refuse(http.StatusServiceUnavailable, control.CodeStopping, "the gate is about to end")
	}
	if l, ok := s.leases[id]; ok {
		return refuse(http.StatusConflict, control.CodeLeased, "cell %s is leased to run %s", id, l.Run)
	}
	if on, ok := s.servesMetricsIn(want.Prefix); ok {
		return refuse(http.StatusConflict, control.CodeListen, "the metrics are served on %v, which is in prefix %v", on, want.Prefix)
	}
	for _, l := range s.leases {
		if l.Prefix.Overlaps(want.Prefix) {
			return refuse(http.StatusConflict, control.CodeLeased, "prefix %v overlaps that of cell %s, %v", want.Prefix, l.id, l.Prefix)
		}
	}
	return nil
}

// serve serves a cell until its lease ends. If one of its servers fails, all of
// it is closed: the lease stays to be released, and its stream breaks.
func (s *server) serve(ctx context.Context, l *lease, on *listener.Cell) {
	err := l.serve(ctx, on)
	l.cancel()
	l.limit.End()
	if err != nil {
		s.Log.Error("cell failed: its listeners are closed", "cell", l.id, "run", l.Run, "error", err)
		l.journal.End(false)
	}
	close(l.ended)
}

// serve closes the sockets when it returns.
func (l *lease) serve(ctx context.Context, on *listener.Cell) error {
	s := l.server
	resolver, err := s.cellResolver()
	if err != nil {
		on.Close()
		return err
	}
	l.tunnel.Resolver = outside{s, resolver}
	names := &dnsgate.Server{
		Current: l.current, Page: page.Name, Answer: l.Address, Prefix: l.Prefix, Deliver: l.deliver, Loop: s.names,
		Log: s.Log.With("cell", l.id), Meter: l.tunnel.Meter,
	}
	group, inner := errgroup.WithContext(ctx)
	// A panic of one of these is the cell's alone, which fails.
	contained := func(serve func() error) {
		group.Go(func() (err error) {
			defer contain.With(func(p *contain.Panic) { err = fmt.Errorf("panic: %s", p.Words()) })
			return serve()
		})
	}
	contained(func() error { return names.Serve(inner, on.UDP, on.TCP) })
	contained(func() error { return l.tunnel.ServeTLS(inner, on.TLS) })
	contained(func() error { return l.tunnel.ServeHTTP1(inner, on.HTTP) })
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// current is the policy to decide by: while decisions cannot be written, it
// denies everything.
func (l *lease) current() *firewall.Policy {
	p := l.policy.Load()
	if s := l.server; !s.decisions.Ready() || s.File != nil && !s.File.Ready() {
		return p.Closed(firewall.ReasonLog, "the gate cannot write its log of decisions")
	}
	return p
}

// release ends the lease of a cell, waits until nothing of it runs and returns
// it with its final receipt. A second call meanwhile waits as well.
func (s *server) release(ctx context.Context, id string) (control.Cell, error) {
	l, err := s.find(id)
	if err != nil {
		return control.Cell{}, err
	}
	l.cancel()
	select {
	case <-l.ended:
	case <-ctx.Done(): // the caller has gone; the end of the lease goes on
		return control.Cell{}, ctx.Err()
	}
	if s.forget(l) {
		s.Log.Info("cell released", "cell", id, "run", l.Run)
	}
	return l.cell(true), nil
}

// forget takes a lease that has ended off the list, unless somebody has.
func (s *server) forget(l *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.id] != l {
		return false
	}
	delete(s.leases, l.id)
	s.countCells()
	s.leaveRun(l.Run)
	return true
}

func (s *server) find(id string) (*lease, error) {
	if !validCell.MatchString(id) {
		return nil, refuse(http.StatusBadRequest, control.CodeInvalid, "the cell's id must match %s", validCell)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.leases[id]
	if !ok {
		return nil, refuse(http.StatusNotFound, control.CodeNotLeased, "cell %s has no lease", id)
	}
	return l, nil
}

// list returns the leases, sorted by id.
func (s *server) list() control.CellList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := control.CellList{Cells: make([]control.Cell, 0, len(s.leases))}
	for _, l := range s.leases {
		list.Cells = append(list.Cells, l.cell(false))
	}
	slices.SortFunc(list.Cells, func(a, b control.Cell) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// cell is the lease as the control API shows it.
func (l *lease) cell(rows bool) control.Cell {
	c := control.Cell{ID: l.id, Lease: l.Lease, Digest: l.policy.Load().Digest()}
	if rows {
		c.Receipt = l.ledger.Receipt()
	} else {
		c.Receipt = account.Receipt{Policy: l.Lease.Policy, Digest: c.Digest, Hosts: []account.ReceiptHost{}}
	}
	return c
}
