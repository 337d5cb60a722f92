package executor_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/backend"
)

// secondBackend registers another backend beside the default one.
func secondBackend(b *processBackend, boundary *testBoundary) func(*executor.Config) {
	return func(c *executor.Config) {
		c.Backends = append(c.Backends, backend.Backend{
			Name: "second", Model: "process", Strength: backend.Process, Attachments: []backend.Attachment{backend.ByCell},
			Sandboxes: b, Cells: &testCells{}, Boundary: boundary,
			Usable: func(context.Context) error { return nil },
		})
	}
}

// TestBackends has two backends: a run gets the one that it names, and results, records
// and capabilities say which.
func TestBackends(t *testing.T) {
	second := &processBackend{}
	h := start(t, secondBackend(second, &testBoundary{}))
	for _, tt := range []struct {
		extra []string
		want  api.Isolation
		noted bool
	}{
		{nil, api.Isolation{Backend: "docker", Model: "container"}, false},
		{[]string{`"backend":"docker"`}, api.Isolation{Backend: "docker", Model: "container"}, false},
		{[]string{`"backend":"second"`}, api.Isolation{Backend: "second", Model: "process"}, true},
	} {
		res := h.post(command("echo fine", tt.extra...))
		tt.want.Sandbox = res.Isolation.Sandbox // whatever its name
		tt.want.ImageDigest = "sha256:" + strings.Repeat("ab", 32)
		if !res.Success || res.Isolation != tt.want || tt.want.Sandbox == "" {
			t.Errorf("%v: %+v, isolation %+v", tt.extra, res.Error, res.Isolation)
		}
		meta, err := os.ReadFile(filepath.Join(h.config.State, "executions", res.ExecutionID, "meta.json"))
		if err != nil || strings.Contains(string(meta), `"backend":"second"`) != tt.noted || strings.Contains(string(meta), `"docker"`) {
			t.Errorf("%v: on record: %s, %v", tt.extra, meta, err)
		}
	}
	if len(h.backend.specs) != 2 || len(second.specs) != 1 {
		t.Errorf("%d and %d sandboxes were started", len(h.backend.specs), len(second.specs))
	}
	c := get[api.Capabilities](h, "/v1/capabilities")
	if !slices.Equal(c.Backends, []string{"docker", "second"}) || c.Sandbox.IsolationModel != "container" {
		t.Errorf("capabilities: %v, %+v", c.Backends, c.Sandbox)
	}
	resp, data := h.do(http.MethodPost, "/v1/executions", command("true", `"backend":"third"`))
	p := decode[api.Problem](t, resp, data, http.StatusUnprocessableEntity)
	if p.Details["field"] != "config.backend" || !strings.Contains(p.Detail, "one of docker, second") {
		t.Errorf("an unknown backend: %+v", p)
	}
	h.wantClean()
}

// TestBoundaryOfEachBackend has the boundary of one backend of two broken: nothing runs
// there, and what runs on the other goes on.
func TestBoundaryOfEachBackend(t *testing.T) {
	second, broken := &processBackend{}, &testBoundary{failed: "host-listener"}
	h := start(t, secondBackend(second, broken))
	res := h.post(command("true", `"backend":"second"`))
	wantCode(t, res, api.CodeStartFailed)
	if !strings.Contains(res.Error.Message, "host-listener") || res.Isolation.Backend != "second" || len(second.specs) != 0 {
		t.Errorf("error %+v, isolation %+v, %d sandboxes", res.Error, res.Isolation, len(second.specs))
	}
	if res := h.post(command("true")); !res.Success || len(h.backend.specs) != 1 {
		t.Errorf("on the other one: %+v", res.Error)
	}
	resp, data := h.do(http.MethodGet, "/readyz", "")
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(data), "second: the boundary does not hold") {
		t.Errorf("readiness: %s %s", resp.Status, data)
	}
	h.wantClean()
}
