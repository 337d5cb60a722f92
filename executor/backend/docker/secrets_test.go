package docker_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/dockertest"
	"sallyport/executor/boundary"
	"sallyport/executor/dispatch"
	"sallyport/executor/plan"
	"sallyport/executor/policy"
	"sallyport/executor/secrets"
	"sallyport/executor/statedir"
	"sallyport/executor/store"
	"sallyport/gate/control"
)

const (
	secretAllowlist = "version: 1\npolicies:\n  strict: {allow: [.listed.example]}\n  open: {allow: any}\n"
	secretProfiles  = `version: 1
policyVersion: 1
default: p
secrets: {in-a-variable: {env: NEEDLE}, in-a-file: {file: NEEDLE_FILE}}
profiles:
  p: {egress: [strict], tasks: all, secrets: all, approval: none}
`
	secretToken = "a-token-of-the-tests"
)

// A house is a whole executor on a real engine, with a real gate and a proven boundary.
// All runs that bring no workspace have one user.
type house struct {
	t     *testing.T
	stack *dockertest.Stack
	root  string // for callers' directories
	url   string
	// needles are the values of the two secrets.
	needles []string
}

func newHouse(t *testing.T) *house {
	h := &house{t: t, stack: dockertest.New(t), root: t.TempDir()}
	dir := t.TempDir()
	for _, name := range []string{"in-a-variable", "in-a-file"} {
		random := make([]byte, 20)
		rand.Read(random) // never fails
		value := "needle-" + hex.EncodeToString(random)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
		h.needles = append(h.needles, value)
	}
	profiles := filepath.Join(t.TempDir(), "profiles.yaml")
	if err := os.WriteFile(profiles, []byte(secretProfiles), 0o600); err != nil {
		t.Fatal(err)
	}
	live, err := policy.Open(profiles, dockertest.Log(t))
	if err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(executor.Config{Token: secretToken, Config: h.config(secrets.Directory(dir), live)})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e.Handler())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := e.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	h.url = server.URL
	return h
}

func (h *house) config(dir secrets.Directory, profiles *policy.Live) dispatch.Config {
	s, t := h.stack, h.t
	cells, gate := s.Cells(0), &control.Client{Socket: s.Gate(secretAllowlist)}
	eventually(t, "the gate answers", func() bool { _, err := gate.Health(t.Context()); return err == nil })
	background := new(sync.WaitGroup)
	t.Cleanup(background.Wait)
	return dispatch.Config{
		State: s.State, Version: "test",
		Service: plan.Service{
			Roots: []string{h.root}, Agents: agent.All(), Images: []string{s.AgentImage}, UID: dockertest.AgentUID,
			Tiers: []plan.Tier{{Name: "standard", Limits: plan.Limits{
				Limits: dockertest.Limits(), OutputBytes: 1 << 20, WorkspaceBytes: 64 << 20, WorkspaceFiles: 1000,
				Artifacts: store.ArtifactLimits{Bytes: 1 << 20, Files: 100},
			}}},
			DefaultTimeout: time.Minute, MaxTimeout: time.Hour,
		},
		SecretSources: secrets.Sources{{Name: "the files", Provider: dir}},
		Profiles:      profiles,
		Backends: []backend.Backend{{
			Name: "docker", Model: "container", Strength: backend.Container, Attachments: []backend.Attachment{backend.ByCell},
			Sandboxes: s.Backend(), Cells: cells, Usable: s.Engine.Ping,
			Boundary: &boundary.Checker{
				Backend: s.Backend(), Cells: cells, Gate: gate, Policy: "strict",
				Engine: func(ctx context.Context) (string, error) {
					r, err := s.Engine.Check(ctx)
					return r.String(), err
				},
				Image: s.AgentImage, UID: dockertest.AgentUID, GID: dockertest.AgentUID,
				Workspaces: statedir.Workspaces(s.State), Background: background, Log: dockertest.Log(t),
			},
		}},
		Gate: gate, GateState: gate, Log: dockertest.Log(t),
		MaxRuns: 2, Users: 1, Queue: 4, DiskFloor: 1, Keep: 100, KeepFor: time.Hour,
	}
}

// ask makes a call of the API.
func (h *house) ask(method, path, body string, header ...string) []byte {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secretToken)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		h.t.Fatalf("%s %s: %s, %v: %s", method, path, resp.Status, err, data)
	}
	return data
}

// body is the request of a run of the tests' program; in is its workspace, "" for its own.
func body(with bool, in string, args ...string) string {
	req := map[string]any{"prompt": "go", "config": map[string]any{"agent": "command", "argv": append([]string{"/tool"}, args...), "artifacts": []string{"**"}, "cwd": in}}
	if in == "" {
		delete(req["config"].(map[string]any), "cwd")
	}
	if with {
		req["opts"] = map[string]any{"security": map[string]any{"secrets": []string{"in-a-variable", "in-a-file"}}}
	}
	data, _ := json.Marshal(req) // of text alone
	return string(data)
}

// run runs the program to its end, and returns what it printed as JSON.
func (h *house) run(with bool, in string, args ...string) map[string]string {
	h.t.Helper()
	var res api.Result
	if err := json.Unmarshal(h.ask(http.MethodPost, "/v1/executions", body(with, in, args...)), &res); err != nil || !res.Success {
		h.t.Fatalf("%v: %+v, %v", args, res, err)
	}
	return last(h.t, res.Output)
}

// last is the last line of an output.
func last(t *testing.T, output string) (said map[string]string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(output), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &said); err != nil {
		t.Fatalf("%v in %q", err, output)
	}
	return said
}

// begin starts a run and waits until it has printed a line.
func (h *house) begin(with bool, args ...string) (id string) {
	h.t.Helper()
	var x api.Execution
	if err := json.Unmarshal(h.ask(http.MethodPost, "/v1/executions", body(with, "", args...), "Prefer", "respond-async"), &x); err != nil {
		h.t.Fatal(err)
	}
	eventually(h.t, "the run prints", func() bool {
		return bytes.Contains(h.ask(http.MethodGet, "/v1/executions/"+x.ID+"/events", ""), []byte("file /tmp"))
	})
	return x.ID
}

func (h *house) end(id string) {
	h.t.Helper()
	h.ask(http.MethodDelete, "/v1/executions/"+id, "")
	eventually(h.t, "the run ends", func() bool {
		return bytes.Contains(h.ask(http.MethodGet, "/v1/executions/"+id, ""), []byte(`"result"`))
	})
}

// holds returns what of a text or a tree holds one of the needles.
func (h *house) holds(text string) bool {
	return slices.ContainsFunc(h.needles, func(n string) bool { return strings.Contains(text, n) })
}

// TestSecretStaysInItsTask: a task leaves its secrets wherever it can. One beside it, one
// after it, as the same user and in the same cell, finds none of them, nor is one in the
// configuration of a container or in what is kept.
//
// probe: K2, K3
// oracle: the same search in the task that has left them, and in its caller's directory
func TestSecretStaysInItsTask(t *testing.T) {
	h := newHouse(t)
	own := h.run(true, "", "leave", "hunt") // whose artifact is left out
	for _, place := range []string{"environ of itself", "environ of another process", "file /tmp", "file /dev/shm", "file /run/sallyport", "file /home/agent", "file /workspace",
		"file " + "/run/sallyport/secrets", "socket", "name of a socket", "shared memory", "message queue"} {
		if own[place] == "" {
			t.Errorf("control: the task itself does not find it in %s; it does in %v", place, slices.Sorted(maps.Keys(own)))
		}
	}

	first := h.begin(true, "leave", "sleep") // and everything is still there
	for _, c := range h.stack.Containers("") {
		inspected, _, err := h.stack.API.ContainerInspectWithRaw(t.Context(), c.ID, true)
		text, _ := json.Marshal(inspected)
		if err != nil || h.holds(string(text)) {
			t.Errorf("a secret is in the configuration of %v, %v", c.Names, err)
		}
	}
	if found := h.run(false, "", "hunt"); len(found) != 0 {
		t.Errorf("beside it a task finds %v", found)
	}
	h.end(first)
	for range 2 { // in whichever cell of the two
		if found := h.run(false, "", "hunt"); len(found) != 0 {
			t.Errorf("after it a task finds %v", found)
		}
	}
	h.nothingKept()
}

// nothingKept looks through all that the executor keeps, and all that it answers.
func (h *house) nothingKept() {
	h.t.Helper()
	files := 0
	err := filepath.WalkDir(h.stack.State, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		files++
		data, err := os.ReadFile(path)
		if h.holds(path) || h.holds(string(data)) {
			h.t.Errorf("a secret is in %s", path)
		}
		return err
	})
	if err != nil || files < 10 {
		h.t.Errorf("%d files, %v", files, err)
	}
	if h.holds(string(h.ask(http.MethodGet, "/v1/executions", ""))) {
		h.t.Error("a secret is in the list of executions")
	}
}

// TestSecretInCallersDirectory: what a task writes to its caller's directory stays there,
// for the next task in that directory and for no other.
//
// probe: K3
// oracle: the directory itself
func TestSecretInCallersDirectory(t *testing.T) {
	h := newHouse(t)
	var dirs []string
	for _, name := range []string{"shared", "other"} {
		dir := filepath.Join(h.root, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, dockertest.AgentUID, dockertest.AgentUID); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	h.run(true, dirs[0], "leave")
	if found := h.run(false, dirs[1], "hunt"); len(found) != 0 {
		t.Errorf("in another directory a task finds %v", found)
	}
	if found := h.run(false, dirs[0], "hunt"); len(found) != 1 || found["file /workspace"] != h.needles[0] {
		t.Errorf("in the same directory a task finds %v", found)
	}
}

// TestSecretEndsWithItsJob: in a sandbox that takes one job after another nothing of the
// first that runs is left for the second.
//
// probe: K3
// oracle: the same search in the first job
func TestSecretEndsWithItsJob(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	_, session := start(t, s, s.Spec(acquire(t, s.Cells(0))))
	value := "needle-" + strings.Repeat("0123456789", 4)
	out, exit := runEnv(t, session, []string{"NEEDLE=" + value}, "leave", "hunt")
	if found := last(t, out); exit.Code != 0 || found["socket"] != value || found["environ of another process"] != value {
		t.Errorf("control: %v, %+v", found, exit)
	}
	out, _ = run(t, session, "hunt")
	for place := range last(t, out) {
		if strings.HasPrefix(place, "environ") || strings.Contains(place, "socket") || strings.Contains(place, "keyring") {
			t.Errorf("the second job finds it in %s", place)
		}
	}
}
