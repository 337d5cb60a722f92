package executor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor"
	"sallyport/executor/api"
)

// TestSecretsUnderRoot: an executor does not start while a secret of its own lies where
// a request could have it put into a sandbox, by whatever links it is there.
//
// probe: X24
// oracle: the control, whose run reads the App's key as soon as the executor is not told
// that it is a secret
func TestSecretsUnderRoot(t *testing.T) {
	h := start(t)
	h.end()
	outside := filepath.Join(t.TempDir(), "outside")
	inside := h.workspace("project")
	for _, dir := range []string{outside, inside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "app.pem"), []byte("the key\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		filepath.Join(outside, "in.pem"):  filepath.Join(inside, "app.pem"),
		filepath.Join(inside, "out.pem"):  filepath.Join(outside, "app.pem"),
		filepath.Join(outside, "in"):      inside,
		filepath.Join(h.root, "out"):      outside,
		filepath.Join(outside, "ok.pem"):  filepath.Join(outside, "app.pem"),
		filepath.Join(outside, "nowhere"): filepath.Join(outside, "nosuch"),
	} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	for path, ok := range map[string]bool{
		filepath.Join(outside, "app.pem"):       true,
		filepath.Join(outside, "ok.pem"):        true,
		filepath.Join(outside, "nowhere"):       true,
		filepath.Join(inside, "app.pem"):        false,
		filepath.Join(inside, "later.pem"):      false,
		filepath.Join(outside, "in.pem"):        false, // leads in
		filepath.Join(inside, "out.pem"):        false, // leads out, as long as the agent wants it
		filepath.Join(outside, "in", "app.pem"): false,
		filepath.Join(h.root, "out", "app.pem"): false,
	} {
		h.config.Secrets = map[string]string{"SALLYPORT_THE_KEY": path}
		if ok {
			h.boot()
			h.end()
			continue
		}
		if e, err := executor.New(h.config); err == nil {
			e.Shutdown(t.Context())
			t.Errorf("%s: it starts", path)
		} else if text := err.Error(); !strings.Contains(text, "SALLYPORT_THE_KEY is ") || !strings.Contains(text, "lies under the root "+h.root) {
			t.Errorf("%s: %v", path, err)
		}
	}
	h.config.Secrets = nil
	h.boot()
	defer h.end()
	if res := h.post(command("cat app.pem", `"cwd":"`+inside+`"`)); !res.Success || res.Output != "the key\n" {
		t.Errorf("control: %+v, %v", res, res.Error)
	}
}

// TestSecretsArePrivate: what is the executor's is refused by each path of a request,
// also where a root was made to hold it later.
func TestSecretsArePrivate(t *testing.T) {
	for _, field := range []string{"cwd", "agentContextDir", "sessionsDir", "skillPaths"} {
		h := start(t, func(c *executor.Config) {
			c.State = filepath.Join(c.Service.Roots[0], "state")
			for _, dir := range []string{"executions", "gate"} {
				if err := os.MkdirAll(filepath.Join(c.State, dir), 0o777); err != nil {
					t.Fatal(err)
				}
			}
		})
		for _, dir := range []string{h.config.State, filepath.Join(h.config.State, "executions"), filepath.Join(h.config.State, "gate"), h.root} {
			resp, data := h.do("POST", "/v1/executions", command("true", path(field, dir)))
			if p := decode[api.Problem](t, resp, data, 422); p.Details["field"] != "config."+field || !strings.Contains(p.Detail, "executor's own") {
				t.Errorf("%s: %s: %+v", field, dir, p)
			}
		}
		other := h.workspace("other")
		if err := os.WriteFile(filepath.Join(other, "SKILL.md"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if res := h.post(command("true", path(field, other))); !res.Success {
			t.Errorf("control: %s: %v", field, res.Error)
		}
	}
}

// path is a field of the configuration that names a directory.
func path(field, dir string) string {
	if field == "skillPaths" {
		return `"skillPaths":["` + dir + `"]`
	}
	return `"` + field + `":"` + dir + `"`
}
