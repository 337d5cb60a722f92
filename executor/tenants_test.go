package executor_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/policy"
)

// tenants has the tenants acme and beta, each with further lines of its own, in which ROOT
// is the configured root. Their directories are there.
func tenants(t *testing.T, acme, beta string) func(*executor.Config) {
	return func(c *executor.Config) {
		root := c.Service.Roots[0]
		for _, name := range []string{"acme", "beta"} {
			if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		text := "version: 1\npolicyVersion: 1\ndefault: p\ntenants:\n  acme: {profiles: all" + acme + "}\n  beta: {profiles: all" + beta + "}\n" +
			"profiles:\n  p: {egress: all, tasks: all, github: all, repositories: all, approval: none}\n"
		path := filepath.Join(t.TempDir(), "profiles.yaml")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "ROOT", root)), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if c.Profiles, err = policy.Open(path, c.Log); err != nil {
			t.Fatal(err)
		}
	}
}

// refusedRun is the problem that answers a request for a run.
func (h *harness) refusedRun(status int, body, token string) api.Problem {
	h.t.Helper()
	resp, data := h.do(http.MethodPost, "/v1/executions", body, append(bearer(token), "Prefer", "respond-async")...)
	var p api.Problem
	if err := json.Unmarshal(data, &p); err != nil || resp.StatusCode != status {
		h.t.Fatalf("%s: %s %s, want %d", body, resp.Status, data, status)
	}
	return p
}

// TestTenantsDirectories: a tenant names directories below its own roots, whatever links
// lead elsewhere, and none that another tenant's runs may use; one without roots names none.
//
// probe: T3
// oracle: the same names by the tenant whose they are, and by the operator
func TestTenantsDirectories(t *testing.T) {
	h := start(t, tenants(t, ", roots: [ROOT/acme]", ", roots: [ROOT/beta]"))
	h.workspace("acme/w")
	theirs := h.workspace("beta/w")
	h.workspace("common")
	if err := os.Symlink(theirs, filepath.Join(h.root, "acme/out")); err != nil {
		t.Fatal(err)
	}
	acme, beta := h.token("?tenant=acme", "ci", "run", "read").Token, h.token("?tenant=beta", "ci", "run", "read").Token
	for name, tt := range map[string]struct {
		token, dir string
		refused    bool
	}{
		"its own":                           {acme, "acme/w", false},
		"another's":                         {acme, "beta/w", true},
		"another's, by a link in its own":   {acme, "acme/out", true},
		"nobody's":                          {acme, "common", true},
		"above its own":                     {acme, ".", true},
		"control: the other":                {beta, "beta/w", false},
		"control: the operator":             {testToken, "common", false},
		"control: the operator, a tenant's": {testToken, "beta/w", false},
	} {
		t.Run(name, func(t *testing.T) {
			h.t = t
			dir := filepath.Join(h.root, tt.dir)
			for _, field := range []string{"cwd", "sessionsDir", "agentContextDir"} {
				body := command("true", fmt.Sprintf("%q:%q", field, dir))
				if !tt.refused {
					id := h.begin(body, bearer(tt.token)...)
					for h.state(id, tt.token) != api.StateFinished {
						time.Sleep(10 * time.Millisecond)
					}
					continue
				}
				p := h.refusedRun(http.StatusUnprocessableEntity, body, tt.token)
				if text := fmt.Sprint(p.Details["roots"], p.Detail); p.Details["field"] != "config."+field || tt.dir != "beta/w" && strings.Contains(text, "beta") {
					t.Errorf("%s: %+v", field, p)
				}
			}
		})
	}
	h.t = t

	// A root that is a link into another tenant's is a fault of the operator's: then nobody
	// has it.
	linked := start(t, tenants(t, ", roots: [ROOT/link]", ", roots: [ROOT/beta]"))
	linked.workspace("beta/w")
	if err := os.Symlink(filepath.Join(linked.root, "beta"), filepath.Join(linked.root, "link")); err != nil {
		t.Fatal(err)
	}
	for tenant, dir := range map[string]string{"acme": "link/w", "beta": "beta/w"} {
		linked.refusedRun(http.StatusUnprocessableEntity, command("true", fmt.Sprintf(`"cwd":%q`, filepath.Join(linked.root, dir))), linked.token("?tenant="+tenant, "ci", "run").Token)
	}
	none := start(t, tenants(t, "", ""))
	none.workspace("acme/w")
	p := none.refusedRun(http.StatusUnprocessableEntity, command("true", fmt.Sprintf(`"cwd":%q`, filepath.Join(none.root, "acme/w"))), none.token("?tenant=acme", "ci", "run").Token)
	if !strings.Contains(p.Detail, "no roots") || p.Details["roots"] != nil {
		t.Errorf("without roots: %+v", p)
	}
}

// state is that of an execution for whoever has the token.
func (h *harness) state(id, token string) string {
	h.t.Helper()
	resp, data := h.do(http.MethodGet, "/v1/executions/"+id, "", bearer(token)...)
	return decode[api.Execution](h.t, resp, data, http.StatusOK).State
}

// TestTenantsLearnNothing: capabilities and refusals tell a tenant of what it may have, and
// not what others have or do.
//
// probe: T3
// oracle: the operator's own capabilities and refusals, which tell
func TestTenantsLearnNothing(t *testing.T) {
	h := start(t, tenants(t, ", roots: [ROOT/acme], egress: [strict, gone], agents: [command], providerKeys: none", ""))
	acme := h.token("?tenant=acme", "ci", "run", "read").Token
	resp, data := h.do(http.MethodGet, "/v1/capabilities", "", bearer(acme)...)
	seen, all := decode[api.Capabilities](t, resp, data, http.StatusOK), get[api.Capabilities](h, "/v1/capabilities")
	if !slices.Equal(seen.Policies, []string{"strict"}) || !slices.Equal(seen.Agents, []string{"command"}) {
		t.Errorf("a tenant is offered %v and %v", seen.Policies, seen.Agents)
	}
	if !slices.Contains(all.Policies, "open") || len(all.Agents) < 3 {
		t.Errorf("control: the operator is offered %v and %v", all.Policies, all.Agents)
	}
	for _, body := range []string{
		command("true", `"egress":"gone"`), command("true", `"egress":"nosuch"`), `{"prompt":"x","config":{"agent":"nosuch"}}`,
		command("true", `"sandboxImage":"nosuch"`), command("true", `"tier":"nosuch"`),
	} {
		_, data := h.do(http.MethodPost, "/v1/executions", body, bearer(acme)...)
		if text := string(data); !strings.Contains(text, `"status":4`) || strings.Contains(text, "open") || strings.Contains(text, "agentic") {
			t.Errorf("%s: %s", body, text)
		}
	}
	if _, data := h.do(http.MethodPost, "/v1/executions", command("true", `"egress":"gone"`)); !strings.Contains(string(data), "open") {
		t.Errorf("control: %s", data)
	}

	dir := h.workspace("acme/w")
	id := h.begin(command("echo begun; sleep 60", fmt.Sprintf(`"cwd":%q`, dir)))
	h.awaitText(id, "begun")
	again := command("true", fmt.Sprintf(`"cwd":%q`, dir))
	if p := h.refusedRun(http.StatusConflict, again, acme); strings.Contains(p.Detail, id) || p.Details["executionId"] != nil {
		t.Errorf("a tenant is told of the operator's run: %+v", p)
	}
	if p := h.refusedRun(http.StatusConflict, again, testToken); p.Details["executionId"] != id {
		t.Errorf("control: the operator is not: %+v", p)
	}
	h.do(http.MethodDelete, "/v1/executions/"+id, "")
	h.finish(id)
}
