package executor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/plan"
)

func (e *Executor) getHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, api.Health{Status: "ok", Version: e.cfg.Version})
}

// github is what requests may ask of GitHub, nil for nothing.
func (e *Executor) github() *api.GithubCapability {
	g := e.cfg.GitHub
	if g == nil {
		return nil
	}
	return &api.GithubCapability{
		Profiles: e.cfg.Service.GitHub.Profiles.Names(),
		Host:     g.Issuer.Hosts().Git,
		Source:   g.Source,
		AppKey:   e.cfg.Service.GitHub.AllowKey,
	}
}

// getReadiness says whether a run could start now, and if not, why.
func (e *Executor) getReadiness(w http.ResponseWriter, _ *http.Request) {
	ready := api.Readiness{Ready: true}
	add := func(name, why string) {
		ready.Ready = ready.Ready && why == ""
		ready.Checks = append(ready.Checks, api.ReadinessCheck{Name: name, Ready: why == "", Detail: why})
	}
	health, err := e.health.get()
	if err == nil {
		err = denying(health)
	}
	add("gate", text(err))
	add("engine", text(e.engine.get()))
	add("boundary", e.proof.why())
	add("executor", text(e.able()))
	status := http.StatusOK
	if !ready.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, ready)
}

// able says why the executor could not take a run by itself, or nil: it is being
// shut down, cannot write to its state directory, or is short of space there.
func (e *Executor) able() error {
	e.mu.Lock()
	draining := e.draining
	e.mu.Unlock()
	if draining {
		return errors.New("the executor is being shut down")
	}
	return e.state.get()
}

// askEngine says why what isolates cannot be used, or nil.
func (c *Config) askEngine() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthTimeout)
	defer cancel()
	return c.Engine(ctx)
}

// tryState says why the state directory cannot take what a run writes, or nil.
func (e *Executor) tryState() error {
	f, err := os.CreateTemp(filepath.Join(e.cfg.State, workspacesDir), ".ready-*")
	if err != nil {
		return fmt.Errorf("the state directory cannot be written: %w", err)
	}
	_, err = f.WriteString("ready")
	if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("the state directory cannot be written: %w", err)
	}
	for _, dir := range []string{e.cfg.State, e.runner.Workspaces} {
		if failure := e.cfg.DiskFloor.Room(dir); failure != nil {
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

func (e *Executor) getOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", jsonType)
	w.Write(api.OpenAPI)
}

// postBoundaryCheck makes the attempts to get out now. Its outcome decides
// whether further runs may start.
func (e *Executor) postBoundaryCheck(w http.ResponseWriter, r *http.Request) {
	report, wait, err := e.proof.ask(r.Context())
	if wait > 0 {
		p := problem(http.StatusTooManyRequests, api.CodeBusy, fmt.Sprintf(
			"the boundary was checked a moment ago; the next check can be asked for in %v", wait.Round(time.Second/10)))
		p.Retryable = true
		p.Details = map[string]any{"retryAfterMs": wait.Milliseconds() + 1}
		tellWait(w, wait)
		writeProblem(w, p)
		return
	}
	if err != nil {
		writeProblem(w, unavailable(api.CodeStartFailed, fmt.Sprintf("the boundary could not be checked: %v", err)))
		return
	}
	writeJSON(w, http.StatusOK, report)
}

func (e *Executor) getCapabilities(w http.ResponseWriter, _ *http.Request) {
	health, p := e.gateHealth()
	if p != nil {
		writeProblem(w, p)
		return
	}
	s := &e.cfg.Service
	c := api.Capabilities{
		Github:             e.github(),
		Version:            e.cfg.Version,
		Agents:             s.AgentNames(),
		Backends:           []string{s.Backend},
		Images:             s.Images,
		Policies:           s.Offered(health.Policies),
		PolicyDigest:       health.Digest,
		DefaultModel:       s.Model,
		WebSearchProviders: s.SearchProviders(),
		Limits:             e.limits(),
		Sandbox: api.Sandbox{
			Supported:      e.proof.why() == "",
			IsolationModel: e.cfg.Isolation.Model,
			// Network, through the gate; everything else is the sandbox's own.
			AllowedHostCalls: []string{"host.fetch"},
			WallClockLimitMS: s.MaxTimeout.Milliseconds(),
		},
	}
	for _, t := range s.Tiers {
		c.Tiers = append(c.Tiers, t.API())
		c.Sandbox.MemoryLimitBytes = max(c.Sandbox.MemoryLimitBytes, t.Limits.MemoryBytes)
	}
	writeJSON(w, http.StatusOK, c)
}

func (e *Executor) limits() api.ServiceLimits {
	l := e.cfg.Service.Tiers[0].Limits
	return api.ServiceLimits{
		RequestBytes:     plan.MaxRequest,
		DefaultTimeoutMS: e.cfg.Service.DefaultTimeout.Milliseconds(),
		MaxTimeoutMS:     e.cfg.Service.MaxTimeout.Milliseconds(),
		OutputBytes:      l.OutputBytes,
		WorkspaceBytes:   l.WorkspaceBytes,
		ArtifactBytes:    l.Artifacts.Bytes,
		ArtifactFiles:    l.Artifacts.Files,
		ConcurrentRuns:   e.cfg.MaxRuns,
		QueuedRuns:       e.cfg.Queue,
		KeptExecutions:   e.cfg.Keep,
		KeptForMS:        e.cfg.KeepFor.Milliseconds(),
	}
}
