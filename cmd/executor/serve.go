package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/entrypoint/probe"
	"sallyport/executor"
	"sallyport/executor/agent"
	"sallyport/executor/backend"
	"sallyport/executor/backend/docker"
	"sallyport/executor/backend/docker/cells"
	"sallyport/executor/backend/docker/engine"
	"sallyport/executor/boundary"
	"sallyport/executor/caller"
	"sallyport/executor/dispatch"
	"sallyport/executor/place"
	"sallyport/executor/plan"
	"sallyport/executor/policy"
	"sallyport/executor/statedir"
	"sallyport/executor/store"
	"sallyport/firewall/account"
	"sallyport/gate/control"
	"sallyport/internal/version"
)

// Bounds that are not settings.
const (
	tmpBytes       = 1 << 30 // of each tmpfs; all of them count as the sandbox's memory
	shmBytes       = 64 << 20
	openFiles      = 4096 // of one process
	stopGrace      = 5 * time.Second
	workspaceFiles = 1_000_000
	artifactBytes  = 256 << 20
	artifactFiles  = 1000
	openTimeout    = 30 * time.Second
	closeTimeout   = 10 * time.Second
	// cellConnections are what a cell may add to the host's table of connections: the
	// keeper's filter lets pass a little less.
	cellConnections = 20_000
)

// serve runs the executor on the Docker engine until ctx ends.
func serve(ctx context.Context, s settings, log *slog.Logger) error {
	token := s.Token
	if token == "" {
		var err error
		if token, err = caller.LoadToken(s.TokenFile); err != nil {
			return err
		}
	}
	on, err := openEngine(ctx, s, log)
	if err != nil {
		return errors.Join(err, revokeLeft(s, log))
	}
	defer on.Close()
	pool, err := cells.NewPool(on, cells.Config{Image: s.CellImage, Subnets: s.CellPool, Ahead: s.CellsAhead})
	if err != nil {
		return err
	}
	var tending sync.WaitGroup // all that must end before the cells are taken apart
	config, err := configure(s, on, pool, &tending, log)
	if err != nil {
		return err
	}
	if err := setUpWebhook(s, &config); err != nil {
		return err
	}
	sendTelemetry, err := setUpTelemetry(ctx, s, &config, log)
	if err != nil {
		return err
	}
	defer sendTelemetry()
	ln, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer ln.Close()
	scraped, err := listenMetrics(s.MetricsListen)
	if err != nil {
		return err
	}
	defer scraped.Close()
	e, err := executor.New(executor.Config{Config: config, Token: token})
	if err != nil {
		return err
	}
	local, err := executor.ListenSocket(s.APISocket) // e has the lock of the state directory
	if err != nil {
		return errors.Join(err, e.Shutdown(ctx))
	}
	defer local.Close()
	defer scraped.serve(e.Metrics(), log)()
	cctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	tending.Go(func() { pool.Run(cctx) }) // it ends with cctx alone
	tending.Go(func() { checkApp(cctx, config.GitHub, log) })
	log.Info("executor started", "version", config.Version, "listen", ln.Addr().String(), "socket", s.APISocket, "stack", s.Stack, "state", s.State)
	err = e.Serve(ctx, ln, local)
	stop()
	tending.Wait()
	endctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err = errors.Join(err, pool.Close(endctx))
	log.Info("executor stopped")
	return err
}

// openEngine connects to the engine and refuses one that is known to leak.
func openEngine(ctx context.Context, s settings, log *slog.Logger) (*engine.Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	on, err := engine.Open(ctx, engine.Config{Stack: s.Stack, State: s.State, Log: log})
	if err != nil {
		return nil, err
	}
	report, err := on.Check(ctx)
	if err == nil {
		for _, f := range report.Findings {
			log.Warn("about the engine", "engine", report.String(), "finding", f.ID, "verdict", f.Verdict, "text", f.Text, "source", f.Source)
		}
		err = report.Err()
	}
	if err != nil {
		return nil, errors.Join(err, on.Close())
	}
	return on, nil
}

// configure puts the executor together.
func configure(
	s settings, on *engine.Engine, pool *cells.Pool, background *sync.WaitGroup, log *slog.Logger,
) (dispatch.Config, error) {
	roots, err := plan.ResolveRoots(s.Roots)
	if err != nil {
		return dispatch.Config{}, fmt.Errorf("settings: %w", err)
	}
	warnOfRoots(roots, log)
	github, offered, err := setUpGitHub(s, log)
	if err != nil {
		return dispatch.Config{}, err
	}
	profiles, err := policy.Open(s.Profiles, log)
	if err != nil {
		return dispatch.Config{}, err
	}
	sources, err := s.secretSources()
	if err == nil {
		err = s.checkModel(context.Background(), sources)
	}
	if err != nil {
		return dispatch.Config{}, err
	}
	service := s.service(roots)
	service.GitHub = offered
	gate := &control.Client{Socket: s.GateSocket}
	sandboxes, err := s.docker(on, pool, gate, service.Tiers, background, log)
	if err != nil {
		return dispatch.Config{}, err
	}
	backends := []backend.Backend{sandboxes}
	return dispatch.Config{
		State:   s.State,
		Secrets: s.secrets(),
		Version: version.String(),
		Service: service,

		SecretSources: sources,

		GitHub:    github,
		Profiles:  profiles,
		Backends:  backends,
		Gate:      gate,
		GateState: gate,
		Boot: func(ctx context.Context) (map[string]account.Receipt, error) {
			return sweep(ctx, backends, gate, log)
		},
		Log:     log,
		MaxRuns: s.MaxRuns,
		Users:   s.MaxRuns,
		Queue:   s.Queue,

		WorkerRuns: s.WorkerRuns,
		QueueTime:  s.QueueTime,

		DiskFloor:    place.Floor(s.DiskFloor),
		AllowSockets: s.AllowSockets,

		Keep:    s.Keep,
		KeepFor: s.KeepFor,
	}, nil
}

// docker is the backend that isolates with an engine. background is what its proof leaves
// to be done.
func (s settings) docker(
	on *engine.Engine, pool *cells.Pool, gate *control.Client, tiers []plan.Tier, background *sync.WaitGroup, log *slog.Logger,
) (backend.Backend, error) {
	sandboxes, err := docker.NewBackend(on, s.AgentUID)
	if err != nil {
		return backend.Backend{}, err
	}
	return backend.Backend{
		Name: "docker", Model: "container", Strength: backend.Container,
		Attachments: []backend.Attachment{backend.ByCell},
		Sandboxes:   sandboxes,
		Cells:       pool,
		Usable:      on.Ping,
		Boundary: &boundary.Checker{
			Backend:    sandboxes,
			Cells:      pool,
			Gate:       gate,
			Engine:     func(ctx context.Context) (string, error) { return engineName(ctx, on) },
			Policy:     "strict",
			Image:      s.AgentImage,
			UID:        s.AgentUID,
			GID:        s.AgentUID,
			Workspaces: statedir.Workspaces(s.State),
			Background: background,
			Need:       s.need(on, tiers),
			Log:        log,
		},
		Sweep: on.Sweep,
	}, nil
}

// warnOfRoots tells of roots where a set-user-ID file that an agent leaves makes other
// users of the host the agent's user, until the run ends.
func warnOfRoots(roots []string, log *slog.Logger) {
	for _, root := range roots {
		info, err := os.Stat(root)
		var mount unix.Statfs_t
		if err == nil {
			err = unix.Statfs(root, &mount)
		}
		switch {
		case err != nil:
			log.Warn("a root could not be looked at", "root", root, "error", err)
		case setIDCounts(info.Mode(), mount.Flags):
			log.Warn("other users can enter a root, and run set-id files there: chmod o= it, or mount it nosuid", "root", root)
		}
	}
}

// setIDCounts reports whether other users can enter a directory on a mount with those
// flags where set-id bits have their effect.
func setIDCounts(mode os.FileMode, flags int64) bool {
	return mode&0o001 != 0 && flags&unix.ST_NOSUID == 0
}

// need is what all runs together may take of what the host has one of.
func (s settings) need(on *engine.Engine, tiers []plan.Tier) probe.Tables {
	need := probe.Tables{Connections: int64(s.MaxRuns) * cellConnections}
	for _, t := range tiers {
		need.TCPBytes = max(need.TCPBytes, int64(s.MaxRuns)*on.TCPMemory(t.Limits.Limits))
	}
	return need
}

func engineName(ctx context.Context, on *engine.Engine) (string, error) {
	report, err := on.Check(ctx)
	if err != nil {
		return "", err
	}
	return report.String(), report.Err()
}

// service is what requests may ask for.
func (s settings) service(roots []string) plan.Service {
	return plan.Service{
		Roots:          roots,
		Agents:         agent.All(),
		Model:          s.Model,
		Images:         []string{s.AgentImage},
		Tiers:          s.tiers(),
		UID:            s.AgentUID,
		Policies:       s.Policies,
		DefaultTimeout: s.Timeout,
		MaxTimeout:     s.MaxTimeout,
		ExtraCA:        s.ExtraCA,
	}
}

// What the tier small has, where the settings do not give less.
const (
	smallMemory = 256 << 20
	smallPIDs   = 128
	smallCPUs   = 1
	smallOutput = 25 << 20
)

// tiers are what the settings allow, and the little that is enough for a worker, for who
// approves one.
func (s settings) tiers() []plan.Tier {
	small := s.limits()
	small.MemoryBytes, small.PIDs, small.CPUs = min(small.MemoryBytes, smallMemory), min(small.PIDs, smallPIDs), min(small.CPUs, smallCPUs)
	small.TmpBytes, small.OutputBytes = min(small.TmpBytes, small.MemoryBytes), min(small.OutputBytes, smallOutput)
	return []plan.Tier{{Name: "standard", Limits: s.limits()}, {Name: "small", Limits: small}}
}

// limits are those of a run.
func (s settings) limits() plan.Limits {
	return plan.Limits{
		Limits: backend.Limits{
			MemoryBytes:  int64(s.Memory),
			PIDs:         s.PIDs,
			CPUs:         s.CPUs,
			TmpBytes:     min(tmpBytes, int64(s.Memory)),
			NoFile:       openFiles,
			StopGrace:    stopGrace,
			ShmSizeBytes: shmBytes,
		},
		OutputBytes:    int64(s.OutputBytes),
		WorkspaceBytes: int64(s.WorkspaceBytes),
		WorkspaceFiles: workspaceFiles,
		Artifacts:      store.ArtifactLimits{Bytes: artifactBytes, Files: artifactFiles},
	}
}

// sweep removes from backends and gate what an executor that died has left. A gate
// that cannot be asked is not in the way: no run starts without it. It returns the
// final receipts of the runs whose leases end here.
func sweep(ctx context.Context, backends []backend.Backend, gate *control.Client, log *slog.Logger) (map[string]account.Receipt, error) {
	var swept backend.Swept
	for _, b := range backends {
		if b.Sweep == nil {
			continue
		}
		removed, err := b.Sweep(ctx)
		if err != nil {
			return nil, err
		}
		swept.Add(removed)
	}
	leases, err := gate.Cells(ctx)
	if err != nil {
		log.Warn("the gate's leases could not be looked at", "error", err)
	}
	receipts := map[string]account.Receipt{}
	for _, cell := range leases {
		final, err := gate.Release(ctx, cell.ID)
		if err != nil {
			log.Warn("a lease could not be ended", "cell", cell.ID, "error", err)
			continue
		}
		receipts[cell.Run] = final.Receipt
	}
	log.Info("swept", "sandboxes", swept.Sandboxes, "canaries", swept.Canaries, "keepers", swept.Keepers, "networks", swept.Networks, "leases", len(leases))
	return receipts, nil
}
