package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/dispatch"
	"sallyport/executor/plan"
	"sallyport/executor/secrets"
	"sallyport/executor/state"
	"sallyport/executor/statedir"
	"sallyport/executor/store"
	"sallyport/gate/control"
	"sallyport/internal/output"
)

// roleVariable makes the test binary another program: PID 1 of a sandbox.
const roleVariable = "SALLYPORT_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const testToken = "~test-token-0123456789"

// secretKey is a provider key that must turn up nowhere.
const secretKey = "sk-secret-value-0123456789"

// A harness is an executor over real parts, but for the engine: sandboxes are
// plain processes that run the real entrypoint.
type harness struct {
	t        testing.TB
	url      string
	executor *executor.Executor
	gate     *testGate
	backend  *processBackend
	cells    *testCells
	boundary *testBoundary
	config   executor.Config
	log      *output.Buffer
	client   *http.Client
	root     string       // the one configured root
	past     atomic.Int64 // by which later has moved the clock, in ns
	end      func()
}

// start makes a harness; change may alter the configuration.
func start(t testing.TB, change ...func(*executor.Config)) *harness {
	t.Helper()
	h := &harness{
		t:        t,
		gate:     startGate(t),
		backend:  &processBackend{},
		cells:    &testCells{},
		boundary: &testBoundary{},
		log:      &output.Buffer{},
		root:     filepath.Join(t.TempDir(), "root"),
	}
	if err := os.Mkdir(h.root, 0o755); err != nil {
		t.Fatal(err)
	}
	h.config = h.defaults()
	for _, c := range change {
		c(&h.config)
	}
	h.boot()
	t.Cleanup(func() { h.end() })
	return h
}

func (h *harness) defaults() executor.Config {
	uid, users := os.Getuid(), 1 // nobody else can be made the owner of a directory
	if uid == 0 {
		uid, users = 10001, 2
	}
	client := &control.Client{Socket: h.gate.socket}
	return executor.Config{Token: testToken, Config: dispatch.Config{
		State:   filepath.Join(h.t.TempDir(), "state"),
		Version: "test",
		Service: plan.Service{
			Roots:          []string{h.root},
			Agents:         agent.All(),
			Images:         []string{"agent:test"},
			Tiers:          []plan.Tier{{Name: "standard", Limits: testLimits}},
			UID:            uid,
			DefaultTimeout: time.Minute,
			MaxTimeout:     time.Hour,
		},
		SecretSources: secrets.Sources{{Name: "the tests", Provider: secrets.Values{"ANTHROPIC_API_KEY": secretKey}}},
		Backends: []backend.Backend{{
			Name: "docker", Model: "container", Strength: backend.Container, Attachments: []backend.Attachment{backend.ByCell},
			Sandboxes: h.backend, Cells: h.cells, Boundary: h.boundary,
			Usable: func(context.Context) error { return nil },
		}},
		Gate:      client,
		GateState: client,
		Log:       slog.New(slog.NewJSONHandler(h.log, nil)),
		MaxRuns:   2,
		Users:     users,
		Queue:     4,
		DiskFloor: 1,
		Keep:      100,
		KeepFor:   time.Hour,
		Now:       func() time.Time { return time.Now().Add(time.Duration(h.past.Load())) },
	}}
}

var testLimits = plan.Limits{
	Limits:         backend.Limits{MemoryBytes: 2 << 30, PIDs: 512, CPUs: 2},
	OutputBytes:    1 << 20,
	WorkspaceBytes: 64 << 20,
	WorkspaceFiles: 10000,
	Artifacts:      store.ArtifactLimits{Bytes: 1 << 20, Files: 10},
}

// secret gives the executor a further secret.
func secret(name, value string) func(*executor.Config) {
	return func(c *executor.Config) { c.SecretSources[0].Provider.(secrets.Values)[name] = value }
}

// limit changes the limits of the tier.
func limit(change func(*plan.Limits)) func(*executor.Config) {
	return func(c *executor.Config) { change(&c.Service.Tiers[0].Limits) }
}

// boot starts the executor on its configuration; end ends it as SIGTERM would.
func (h *harness) boot() {
	h.t.Helper()
	e, err := executor.New(h.config)
	if err != nil {
		h.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx, ln) }()
	h.executor, h.url = e, "http://"+ln.Addr().String()
	h.client = &http.Client{Transport: newChecker(h.t)}
	h.end = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			h.t.Errorf("serve: %v", err)
		}
		h.client.CloseIdleConnections()
	})
}

// store opens the record of executions while no executor has it.
func (h *harness) store() (st *store.Store, end func()) {
	h.t.Helper()
	db, err := state.Open(h.t.Context(), statedir.Database(h.config.State))
	if err != nil {
		h.t.Fatal(err)
	}
	if st, err = store.Open(db, statedir.Executions(h.config.State), slog.New(slog.DiscardHandler), nil); err != nil {
		h.t.Fatal(err)
	}
	return st, func() {
		h.t.Helper()
		if err := errors.Join(st.Close(), db.Close()); err != nil {
			h.t.Fatal(err)
		}
	}
}

// later has the executor take what it remembers for a moment as long past.
func (h *harness) later() { h.past.Add(int64(time.Minute)) }

// request makes a request with the token; header holds names and values in turn.
func (h *harness) request(method, path, body string, header ...string) *http.Request {
	h.t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, h.url+path, r)
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	return req
}

// do makes a request and returns the whole answer.
func (h *harness) do(method, path, body string, header ...string) (*http.Response, []byte) {
	h.t.Helper()
	resp, err := h.client.Do(h.request(method, path, body, header...))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp, data
}

// get decodes the answer to a GET, which must be a success.
func get[T any](h *harness, path string) T {
	h.t.Helper()
	resp, data := h.do(http.MethodGet, path, "")
	return decode[T](h.t, resp, data, http.StatusOK)
}

func decode[T any](t testing.TB, resp *http.Response, data []byte, status int) T {
	t.Helper()
	var v T
	if resp.StatusCode != status {
		t.Fatalf("%s %s: %s, want %d: %s", resp.Request.Method, resp.Request.URL.Path, resp.Status, status, data)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s %s: %v in %s", resp.Request.Method, resp.Request.URL.Path, err, data)
	}
	return v
}

// post runs a request to its end.
func (h *harness) post(body string, header ...string) api.Result {
	h.t.Helper()
	resp, data := h.do(http.MethodPost, "/v1/executions", body, header...)
	return decode[api.Result](h.t, resp, data, http.StatusOK)
}

// begin starts a request without waiting for its end.
func (h *harness) begin(body string, header ...string) string {
	h.t.Helper()
	resp, data := h.do(http.MethodPost, "/v1/executions", body, append(header, "Prefer", "respond-async")...)
	x := decode[api.Execution](h.t, resp, data, http.StatusAccepted)
	if got := resp.Header.Get("Location"); got != "/v1/executions/"+x.ID {
		h.t.Fatalf("Location = %q", got)
	}
	return x.ID
}

// finish waits for an execution's result.
func (h *harness) finish(id string) api.Result {
	h.t.Helper()
	var last api.Event
	for _, ev := range h.events(id, "?follow=true") {
		last = ev
	}
	if last.Result == nil {
		h.t.Fatalf("the last event of %s is %+v, not a result", id, last)
	}
	return *last.Result
}

// events reads a stream of events to its end and checks their numbers.
func (h *harness) events(id, query string) []api.Event {
	h.t.Helper()
	resp, data := h.do(http.MethodGet, "/v1/executions/"+id+"/events"+query, "")
	if resp.StatusCode != http.StatusOK {
		h.t.Fatalf("events of %s: %s: %s", id, resp.Status, data)
	}
	return parseEvents(h.t, data)
}

func parseEvents(t testing.TB, data []byte) []api.Event {
	t.Helper()
	var events []api.Event
	for line := range bytes.Lines(data) {
		var ev api.Event
		if err := json.Unmarshal(line, &ev); err != nil {
			t.Fatalf("event %q: %v", line, err)
		}
		if len(events) > 0 && ev.Seq != events[len(events)-1].Seq+1 {
			t.Fatalf("event %d follows %d", ev.Seq, events[len(events)-1].Seq)
		}
		events = append(events, ev)
	}
	return events
}

// await waits until an execution has an event for which want holds.
func (h *harness) await(id string, want func(api.Event) bool) api.Event {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	resp, err := h.client.Do(h.request(http.MethodGet, "/v1/executions/"+id+"/events?follow=true", "").WithContext(ctx))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	d := json.NewDecoder(resp.Body)
	for {
		var ev api.Event
		if err := d.Decode(&ev); err != nil {
			h.t.Fatalf("the awaited event of %s did not come: %v", id, err)
		}
		if want(ev) {
			return ev
		}
	}
}

// awaitText waits for a piece of the process's output.
func (h *harness) awaitText(id, text string) {
	h.t.Helper()
	h.await(id, func(ev api.Event) bool { return strings.Contains(ev.Text, text) })
}

// command is the body of a request that runs a shell script; extra is further
// members of config.
func command(script string, extra ...string) string {
	argv, _ := json.Marshal([]string{"sh", "-c", script})
	config := append([]string{`"agent":"command"`, `"argv":` + string(argv)}, extra...)
	return `{"prompt":"the prompt","config":{` + strings.Join(config, ",") + `}}`
}

func wantCode(t testing.TB, res api.Result, code api.Code) {
	t.Helper()
	switch {
	case res.Success || res.Error == nil:
		t.Fatalf("the run succeeded, want %s: %+v", code, res)
	case res.Error.Code != code:
		t.Fatalf("code = %s (%s), want %s", res.Error.Code, res.Error.Message, code)
	}
}

// wantClean checks that a finished run has left nothing.
func (h *harness) wantClean() {
	h.t.Helper()
	if n := h.backend.live.Load(); n != 0 {
		h.t.Errorf("%d sandboxes are left", n)
	}
	if n := h.cells.out.Load(); n != 0 {
		h.t.Errorf("%d cells were not given back", n)
	}
	if n := h.gate.leases(); n != 0 {
		h.t.Errorf("%d leases are left", n)
	}
	left, err := os.ReadDir(filepath.Join(h.config.State, "workspaces"))
	if err != nil || len(left) != 0 {
		h.t.Errorf("workspaces left: %v, %v", left, err)
	}
}

// A testBoundary holds unless it is told otherwise.
type testBoundary struct {
	mu     sync.Mutex
	failed string
	err    error
	checks atomic.Int64
}

func (b *testBoundary) set(failed string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed, b.err = failed, err
}

func (b *testBoundary) Check(context.Context) (api.BoundaryReport, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checks.Add(1)
	if b.err != nil {
		return api.BoundaryReport{}, b.err
	}
	r := api.BoundaryReport{Passed: b.failed == "", Engine: "process", CheckedAt: time.Now()}
	r.Findings = []api.BoundaryFinding{{Name: "control", Passed: true, Detail: "reached"}}
	if b.failed != "" {
		r.Findings = append(r.Findings, api.BoundaryFinding{Name: b.failed, Detail: "got through"})
	}
	return r, nil
}

var errTest = errors.New("made to fail by the test")
