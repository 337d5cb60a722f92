package gate

import (
	"net/http"
	"sync/atomic"
	"time"

	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/gate/control"
)

// An edition is one reading of the allowlist that was found right.
type edition struct {
	*allowlist.File
	generation uint64 // counted from the gate's start, which is 1
	since      time.Time
}

// A refusedFile is why the allowlist, as it lies there now, is not in force.
type refusedFile struct {
	err   error
	since time.Time
}

// reloadCounts are the readings since the start, for whoever counts them.
type reloadCounts struct{ good, bad atomic.Int64 }

// reload reads the policies anew and gives them to the leases that run as well
// as to those to come. If that fails nothing changes but what health says.
func (s *server) reload() (control.Health, error) {
	if s.Load == nil {
		return control.Health{}, refuse(http.StatusNotImplemented, control.CodeInvalid, "this gate cannot reload its allowlist")
	}
	e, told, err := s.read()
	if err != nil {
		s.Log.Error("allowlist refused, the policies are as before", "generation", e.generation, "digest", e.Digest(), "error", err)
		return control.Health{}, refuse(http.StatusUnprocessableEntity, control.CodeReloadInvalid, "%v", err)
	}
	for _, tell := range told {
		tell()
	}
	s.Log.Info("allowlist reloaded", "generation", e.generation, "digest", e.Digest(), "policies", e.Names(), "warnings", len(e.Warnings()))
	return s.health(), nil
}

// read is reload but for the lines of the log, told: whoever writes those may have
// to wait for as long as nobody reads them, and must hold no lock meanwhile. It
// returns the edition that is in force then.
func (s *server) read() (e *edition, told []func(), err error) {
	s.reloads.Lock()
	defer s.reloads.Unlock()
	file, err := s.Load()
	if err != nil {
		s.reloaded.bad.Add(1)
		s.refuseFile(err)
		return s.edition.Load(), nil, err
	}
	s.reloaded.good.Add(1)
	e, told = s.adopt(file)
	return e, told, nil
}

// refuseFile notes that the file is not what is in force.
func (s *server) refuseFile(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := &refusedFile{err: err, since: time.Now()}
	if s.refused != nil {
		refused.since = s.refused.since
	}
	s.refused = refused
}

// adopt puts an allowlist into force, for all leases at once: no lease can begin by
// the old one meanwhile. The lines of the log are the caller's to write.
func (s *server) adopt(file *allowlist.File) (e *edition, told []func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e = &edition{File: file, generation: s.edition.Load().generation + 1, since: time.Now()}
	s.edition.Store(e)
	s.refused = nil
	for _, l := range s.leases {
		if tell := l.adopt(e); tell != nil {
			told = append(told, tell)
		}
	}
	return e, told
}

// allowlist is how the health call shows the file. s.mu is held.
func (s *server) allowlist(e *edition) control.Allowlist {
	if s.refused != nil {
		return control.Allowlist{State: control.AllowlistStale, Since: s.refused.since, Error: s.refused.err.Error()}
	}
	return control.Allowlist{State: control.AllowlistCurrent, Since: e.since}
}

// adopt gives a running lease its policy of another edition: what comes is judged
// by that, and what is under way and no longer allowed is cut. Where the edition
// has no policy of the name, everything is denied from now on. It returns what
// writes the line of the log about a change, nil where there is none.
func (l *lease) adopt(e *edition) (tell func()) {
	p, ok := e.Policy(l.Lease.Policy)
	old := l.policy.Swap(p)
	l.tunnel.PolicyChanged()
	if old.Digest() == p.Digest() {
		return nil
	}
	l.ledger.Changed(account.PolicyChange{Time: e.since, Generation: e.generation, Digest: p.Digest()})
	if !ok {
		return func() {
			l.server.Log.Warn("the policy of a cell is gone from the allowlist: everything is denied in it",
				"cell", l.id, "run", l.Run, "policy", l.Lease.Policy, "generation", e.generation)
		}
	}
	return func() {
		l.server.Log.Info("the policy of a cell has changed", "cell", l.id, "run", l.Run, "policy", l.Lease.Policy,
			"generation", e.generation, "from", old.Digest(), "digest", p.Digest())
	}
}

// policyGone is the detail of what is denied because the policy is gone.
const policyGone = "the allowlist no longer has the policy"
