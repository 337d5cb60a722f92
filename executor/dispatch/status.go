package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
	"sallyport/executor/proof"
	"sallyport/executor/statedir"
	"sallyport/gate/control"
)

// Health says that the dispatcher's process is alive.
func (d *Dispatcher) Health() api.Health {
	return api.Health{Status: "ok", Version: d.cfg.Version}
}

// Readiness says whether a run could start now, and if not, why.
func (d *Dispatcher) Readiness() api.Readiness {
	ready := api.Readiness{Ready: true}
	add := func(name, why string) {
		ready.Ready = ready.Ready && why == ""
		ready.Checks = append(ready.Checks, api.ReadinessCheck{Name: name, Ready: why == "", Detail: why})
	}
	health, err := d.health.Get()
	if err == nil {
		err = denying(health)
	}
	add("gate", text(err))
	add("engine", text(d.engine.Get()))
	add("boundary", d.unproven())
	add("executor", text(d.able()))
	return ready
}

// able says why the executor could not take a run by itself, or nil: it is being
// shut down, cannot write to its state directory, or is short of space there.
func (d *Dispatcher) able() error {
	if d.queue.Closed() {
		return errors.New("the executor is being shut down")
	}
	if err := d.audit.settle(); err != nil {
		return unaudited(err)
	}
	return d.state.Get()
}

// askBackends says why what isolates cannot be used, or nil. All backends that are set up
// have to be usable.
func (d *Dispatcher) askBackends() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	var errs []error
	for _, b := range d.backends.All() {
		errs = append(errs, b.Usable(ctx))
	}
	return errors.Join(errs...)
}

// Proof is what is known of the default backend's boundary.
func (d *Dispatcher) Proof() *proof.Proof { return d.proofs[d.backends.Default().Name] }

// unproven says of which backends the boundary does not hold, and why, or nothing.
func (d *Dispatcher) unproven() string {
	var all []string
	for _, name := range d.backends.Names() {
		why := d.proofs[name].Why()
		if why != "" && len(d.proofs) > 1 {
			why = name + ": " + why
		}
		if why != "" {
			all = append(all, why)
		}
	}
	return strings.Join(all, "; ")
}

// tryState says why the state directory cannot take what a run writes, or nil.
func (d *Dispatcher) tryState() error {
	f, err := os.CreateTemp(statedir.Workspaces(d.cfg.State), ".ready-*")
	if err != nil {
		return fmt.Errorf("the state directory cannot be written: %w", err)
	}
	_, err = f.WriteString("ready")
	if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("the state directory cannot be written: %w", err)
	}
	for _, dir := range []string{d.cfg.State, d.runner.Places.Workspaces} {
		if failure := d.cfg.DiskFloor.Room(dir); failure != nil {
			return errors.New(failure.Message)
		}
	}
	return nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Capabilities are what a caller's requests may ask for.
func (d *Dispatcher) Capabilities(by caller.Caller) (api.Capabilities, *api.Problem) {
	health, p := d.gateHealth()
	if p != nil {
		return api.Capabilities{}, p
	}
	s, policies := d.serviceOf(by.Tenant, health.Policies)
	c := api.Capabilities{
		Github:             d.github(s.GitHub),
		Version:            d.cfg.Version,
		Agents:             s.AgentNames(),
		Backends:           s.Backends,
		Images:             s.Images,
		Policies:           s.Offered(policies),
		PolicyDigest:       health.Digest,
		DefaultModel:       s.Model,
		WebSearchProviders: s.SearchProviders(),
		Limits:             d.limits(),
		Sandbox: api.Sandbox{
			Supported:      d.Proof().Why() == "",
			IsolationModel: d.backends.Default().Model,
			// Network, through the gate; everything else is the sandbox's own.
			AllowedHostCalls: []string{"host.fetch"},
			WallClockLimitMS: s.MaxTimeout.Milliseconds(),
		},
	}
	for _, t := range s.Tiers {
		c.Tiers = append(c.Tiers, t.API())
		c.Sandbox.MemoryLimitBytes = max(c.Sandbox.MemoryLimitBytes, t.Limits.MemoryBytes)
	}
	return c, nil
}

// github is what requests may ask of GitHub, nil for nothing.
func (d *Dispatcher) github(s *plan.GitHubService) *api.GithubCapability {
	g := d.cfg.GitHub
	if g == nil {
		return nil
	}
	return &api.GithubCapability{
		Profiles: s.Names(),
		Host:     g.Host,
		Source:   g.Source,
		AppKey:   s.AllowKey,
	}
}

func (d *Dispatcher) limits() api.ServiceLimits {
	l := d.cfg.Service.Tiers[0].Limits
	return api.ServiceLimits{
		RequestBytes:     plan.MaxRequest,
		DefaultTimeoutMS: d.cfg.Service.DefaultTimeout.Milliseconds(),
		MaxTimeoutMS:     d.cfg.Service.MaxTimeout.Milliseconds(),
		OutputBytes:      l.OutputBytes,
		WorkspaceBytes:   l.WorkspaceBytes,
		ArtifactBytes:    l.Artifacts.Bytes,
		ArtifactFiles:    l.Artifacts.Files,
		ConcurrentRuns:   d.cfg.MaxRuns,
		QueuedRuns:       d.cfg.Queue,
		KeptExecutions:   d.cfg.Keep,
		KeptForMS:        d.cfg.KeepFor.Milliseconds(),
	}
}

// healthTimeout bounds the question whether the gate is there, or the engine.
const healthTimeout = 5 * time.Second

// gateHealth asks the gate how it is, now.
func (d *Dispatcher) gateHealth() (control.Health, *api.Problem) {
	h, err := d.health.Get()
	if err != nil {
		return h, api.Unavailable(api.CodeGateUnavailable, fmt.Sprintf("the gate cannot be reached: %v", err))
	}
	return h, nil
}

// askHealth is one question to the gate.
func (c *Config) askHealth() (control.Health, error) {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	return c.GateState.Health(ctx)
}

// denying says why a gate that lives would deny a run everything, or nil.
func denying(h control.Health) error {
	if h.Status != control.StatusDenying {
		return nil
	}
	return errors.New("the gate denies everything: " + strings.Join(h.Warnings, "; "))
}
