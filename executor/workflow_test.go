package executor_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"sallyport/executor/api"
)

// TestWorkflowInstance runs tasks of a workflow instance while its operator gives more, and
// takes it back: no run gets more than the first, not after a restart either.
//
// probe: T1
// oracle: the answers to the same request of another instance
func TestWorkflowInstance(t *testing.T) {
	const begin = "version: 1\npolicyVersion: %d\ndefault: build\nprofiles:\n  build: {egress: %s, tasks: all, approval: none, time: %s, tokens: 1000}\n"
	path, profiles := withProfiles(t, fmt.Sprintf(begin, 1, "[strict]", "1h"))
	h := start(t, profiles)
	change := func(version int, egress, time string) {
		t.Helper()
		if err := os.WriteFile(path, fmt.Appendf(nil, begin, version, egress, time), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(instance, version string, config ...string) string {
		return strings.TrimSuffix(command("true", config...), "}") +
			fmt.Sprintf(`,"opts":{"workflow":{"definition":"release/1","version":%q,"instance":%q,"task":"build"}}}`, version, instance)
	}
	first := h.post(of("wf-1", "1.0.0", `"timeoutMs":1000`))
	if p := first.EffectivePolicy; p.PolicyVersion != 1 || p.TTLMS != 1000 {
		t.Fatalf("%+v", p)
	}
	const route = "/v1/workflows/release%2F1/wf-1"
	kept := get[api.WorkflowInstance](h, route)
	if kept.Execution != first.ExecutionID || kept.Version != "1.0.0" || kept.EffectivePolicy.Digest != first.EffectivePolicy.Digest ||
		!strings.Contains(string(kept.Bounds), `"time":3600000000000`) || !strings.Contains(string(kept.Bounds), `"egress":["strict"]`) {
		t.Errorf("%+v with bounds %s", kept, kept.Bounds)
	}

	check := func(when string) {
		t.Helper()
		res := h.post(of("wf-1", "1.0.0"))
		p := res.EffectivePolicy
		narrowed := slices.ContainsFunc(p.Narrowings, func(n api.Narrowing) bool {
			return n.Field == "time" && n.By == "instance" && n.Rule == "instance.time" && n.Reason != ""
		})
		if p.PolicyVersion != 2 || p.TTLMS != 3_600_000 || !narrowed {
			t.Errorf("%s: %+v", when, p)
		}
		resp, data := h.do(http.MethodPost, "/v1/executions", of("wf-1", "1.0.0", `"egress":"open"`))
		if p := decode[api.Problem](t, resp, data, http.StatusForbidden); p.Code != api.CodePolicyDenied || p.Details["rule"] != "instance.egress" || p.Details["field"] != "config.egress" {
			t.Errorf("%s: %+v", when, p)
		}
		resp, data = h.do(http.MethodPost, "/v1/executions", of("wf-1", "2.0.0"))
		if p := decode[api.Problem](t, resp, data, http.StatusForbidden); p.Details["rule"] != "instance.version" {
			t.Errorf("%s: %+v", when, p)
		}
		if again := get[api.WorkflowInstance](h, route); string(again.Bounds) != string(kept.Bounds) {
			t.Errorf("%s bounds %s", when, again.Bounds)
		}
	}
	change(2, "[strict, open]", "2h")
	check("with more in the file")
	if res := h.post(of("wf-2", "1.0.0", `"egress":"open"`)); !res.Success || res.EffectivePolicy.TTLMS != 7_200_000 {
		t.Errorf("another instance: %+v", res.EffectivePolicy)
	}
	h.end()
	h.boot()
	defer func() { h.end() }()
	check("after a restart")
	change(3, "[strict]", "10m")
	if p := h.post(of("wf-1", "1.0.0")).EffectivePolicy; p.TTLMS != 600_000 {
		t.Errorf("with less in the file: %+v", p)
	}
	for _, path := range []string{"/v1/workflows/release%2F1/wf-3", "/v1/workflows/release/wf-1", route + "?tenant=acme"} {
		resp, data := h.do(http.MethodGet, path, "")
		if p := decode[api.Problem](t, resp, data, http.StatusNotFound); p.Code != api.CodeNotFound {
			t.Errorf("%s: %+v", path, p)
		}
	}
}

// TestFirstRunsAtOnce begins one instance with several documents at once: one is kept.
func TestFirstRunsAtOnce(t *testing.T) {
	h := start(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			body := strings.TrimSuffix(command("true"), "}") +
				fmt.Sprintf(`,"opts":{"workflow":{"definition":"d","instance":"i"},"security":{"budgets":{"tokens":%d}}}}`, i+1)
			h.post(body)
		})
	}
	wg.Wait()
	kept := get[api.WorkflowInstance](h, "/v1/workflows/d/i").EffectivePolicy.Tokens
	for _, x := range get[api.ExecutionList](h, "/v1/executions").Executions {
		if p := get[api.Execution](h, "/v1/executions/"+x.ID).Result.EffectivePolicy; p.Tokens > kept {
			t.Errorf("a run has %d tokens, the instance %d", p.Tokens, kept)
		}
	}
}
