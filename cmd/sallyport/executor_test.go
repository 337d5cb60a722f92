package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/dispatch"
	"sallyport/executor/plan"
	"sallyport/executor/statedir"
	"sallyport/executor/store"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

const testToken = "token-of-the-tests-0123456789"

// A testExecutor is the real executor; what it has no engine for is played.
type testExecutor struct {
	url   string
	flaky string // the same, over connections that break
	state string // a state directory with the socket of the same
	own   string // the executor's own state directory
}

// startExecutor starts an executor. breach names a probe that gets out of its cells.
func startExecutor(t *testing.T, breach string) testExecutor {
	t.Helper()
	own := filepath.Join(t.TempDir(), "state")
	gate := &playedGate{cells: map[string]control.Lease{}}
	e, err := executor.New(executor.Config{Token: testToken, Config: dispatch.Config{
		State:   own,
		Version: "v0-test",
		Service: plan.Service{
			Agents: agent.All(),
			Images: []string{"agent:test"},
			Tiers: []plan.Tier{{Name: "standard", Limits: plan.Limits{
				Limits:      backend.Limits{MemoryBytes: 2 << 30, PIDs: 512, CPUs: 2},
				OutputBytes: 1 << 20, WorkspaceBytes: 64 << 20, WorkspaceFiles: 10000,
				Artifacts: store.ArtifactLimits{Bytes: 1 << 20, Files: 10},
			}}},
			UID:            max(os.Getuid(), 1),
			DefaultTimeout: time.Minute,
			MaxTimeout:     time.Hour,
		},
		Backends: []backend.Backend{{
			Name: "docker", Model: "container", Strength: backend.Container, Attachments: []backend.Attachment{backend.ByCell},
			Sandboxes: processes{}, Cells: new(cells), Boundary: boundary(breach),
			Usable: func(context.Context) error { return nil },
		}},
		Gate:      gate,
		GateState: gate,
		Log:       slog.New(slog.DiscardHandler),
		MaxRuns:   4,
		Users:     1,
		Queue:     16,
		DiskFloor: 1,
		Keep:      100,
		KeepFor:   time.Hour,
	}})
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	ln, err := executor.ListenSocket(statedir.SocketFile(state))
	if err != nil {
		t.Fatal(err)
	}
	local := &httptest.Server{Listener: ln, Config: &http.Server{Handler: e.Handler()}}
	local.Start()
	srv := httptest.NewServer(e.Handler())
	flaky := httptest.NewServer(breaking(e.Handler()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		srv.Close()
		local.Close()
		flaky.Close()
	})
	return testExecutor{url: srv.URL, flaky: flaky.URL, state: state, own: own}
}

// nobody is an address where nothing listens.
func nobody(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// breaking lets every event stream break after two flushes with something in them.
func breaking(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&breakingWriter{ResponseWriter: w, left: 2}, r)
	})
}

type breakingWriter struct {
	http.ResponseWriter
	left    int
	written bool
}

func (w *breakingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *breakingWriter) Write(p []byte) (int, error) {
	w.written = w.written || len(p) > 0
	return w.ResponseWriter.Write(p)
}

func (w *breakingWriter) FlushError() error {
	if w.left == 0 {
		panic(http.ErrAbortHandler)
	}
	if w.written {
		w.left, w.written = w.left-1, false
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// processes starts the real entrypoint as a process of this machine.
type processes struct{}

type process struct {
	cmd    *exec.Cmd
	in     *io.PipeWriter
	home   string
	waited sync.Once
	ended  chan struct{}
}

func (processes) Start(_ context.Context, spec backend.Spec) (*backend.Sandbox, error) {
	home, err := os.MkdirTemp("", "sallyport-home-")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("entrypoint")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	go relay(r, stdin, strings.NewReplacer(backend.WorkspaceDir, spec.Workspace, backend.HomeDir, home))
	p := &process{cmd: cmd, in: w, home: home, ended: make(chan struct{})}
	return &backend.Sandbox{ID: fmt.Sprint(cmd.Process.Pid), Stdin: w, Stdout: stdout, Life: p}, nil
}

// relay carries frames to the entrypoint; the paths in jobs are made those of
// this machine.
func relay(r *io.PipeReader, in io.WriteCloser, places *strings.Replacer) {
	defer in.Close()
	frames, out := wire.NewReader(r), wire.NewWriter(in)
	for {
		f, err := frames.Next()
		if err == nil && f.Type == wire.FrameJob {
			var job wire.Job
			if err = json.Unmarshal([]byte(places.Replace(string(f.Payload))), &job); err == nil {
				job.ExtraCA = nil
				f.Payload, err = json.Marshal(job)
			}
		}
		if err == nil {
			err = out.Write(f.Type, f.Payload)
		}
		if err != nil {
			r.CloseWithError(err)
			return
		}
	}
}

func (p *process) OOMKilled(context.Context) (bool, error) { return false, nil }

func (p *process) Wait(ctx context.Context) (backend.Exit, error) {
	go p.waited.Do(func() {
		p.cmd.Process.Wait()
		close(p.ended)
	})
	select {
	case <-p.ended:
		return backend.Exit{}, nil
	case <-ctx.Done():
		return backend.Exit{}, ctx.Err()
	}
}

func (p *process) Remove(ctx context.Context) error {
	p.in.Close()
	_, err := p.Wait(ctx)
	return errors.Join(err, os.RemoveAll(p.home))
}

// cells lends cells that are only addresses.
type cells struct{ made atomic.Int64 }

func (c *cells) Acquire(context.Context) (backend.Cell, error) {
	n := byte(c.made.Add(1))
	at := func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{172, 30, n, host}) }
	return backend.Cell{ID: fmt.Sprint("cell", n), Holder: "nobody", Prefix: netip.PrefixFrom(at(0), 28), Gate: at(2), Sandbox: at(3)}, nil
}

func (c *cells) Put(backend.Cell)     {}
func (c *cells) Discard(backend.Cell) {}

// A playedGate decides nothing by itself: every run has reached and been refused the same.
type playedGate struct {
	mu    sync.Mutex // guards cells
	cells map[string]control.Lease
}

var decisions = []account.Record{
	{Kind: account.KindDNS, Host: "api.github.com", Verdict: firewall.Allow, Reason: firewall.ReasonListed},
	{Kind: account.KindTLS, Host: "api.github.com", Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 1200, BytesDown: 34567},
	{Kind: account.KindDNS, Host: "example.org", Verdict: firewall.Deny, Reason: firewall.ReasonNotListed},
	{Kind: account.KindTLS, Host: `evil\x1b[2J`, Port: 443, Verdict: firewall.Deny, Reason: firewall.ReasonBadName, Detail: "\x1b]0;title\a"},
}

func (g *playedGate) Lease(_ context.Context, id string, l control.Lease) (control.Cell, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cells[id] = l
	return g.cell(id, l), nil
}

func (g *playedGate) Release(_ context.Context, id string) (control.Cell, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cell(id, g.cells[id]), nil
}

func (g *playedGate) cell(id string, l control.Lease) control.Cell {
	ledger := account.NewLedger(l.Policy, "sha256:0123")
	for _, r := range decisions {
		ledger.Add(r)
	}
	return control.Cell{ID: id, Lease: l, Digest: "sha256:0123", Receipt: ledger.Receipt()}
}

func (g *playedGate) Decisions(ctx context.Context, _ string, _ bool) iter.Seq2[account.Record, error] {
	return func(yield func(account.Record, error) bool) {
		for _, r := range decisions {
			if !yield(r, nil) {
				return
			}
		}
		<-ctx.Done() // a stream that ended would mean that the gate is gone
	}
}

func (g *playedGate) Health(context.Context) (control.Health, error) {
	return control.Health{Status: "ok", Instance: "1", Digest: "sha256:all", Policies: []string{"open", "strict"}}, nil
}

func (g *playedGate) Judge(_ context.Context, q control.Question) (control.Judgement, error) {
	if q.Host != "api.github.com" {
		return control.Judgement{Verdict: firewall.Deny, Reason: firewall.ReasonNotListed}, nil
	}
	return control.Judgement{Verdict: firewall.Allow, Reason: firewall.ReasonListed, Rule: q.Host, Line: 3, Refusals: make([]string, len(q.Addresses))}, nil
}

// boundary is the outcome of the probes: the name of the one that got through.
type boundary string

func (b boundary) Check(context.Context) (api.BoundaryReport, error) {
	r := api.BoundaryReport{Passed: b == "", Engine: "Process 1.0", CheckedAt: time.Now(), Warnings: []string{"the table is small"}}
	r.Findings = []api.BoundaryFinding{{Name: "direct-address", Passed: true, Detail: "no route to host"}}
	if b != "" {
		r.Findings = append(r.Findings, api.BoundaryFinding{Name: string(b), Detail: "a listener of the host was reached"})
	}
	return r, nil
}
