package executor_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/caller"
)

// governed is a file with a profile of these lines, which is the default one.
func governed(lines string) string {
	if !strings.Contains(lines, "approval:") {
		lines += "\napproval: none"
	}
	return "version: 1\npolicyVersion: 4\ndefault: p\nservice: {tokens: 1000000000}\ntenants:\n  acme: {profiles: all, egress: [strict]}\n" +
		"providers: {cube: {backend: docker}}\nsecrets: {s: {env: S}, file-of-s: {file: S_FILE}}\nprofiles:\n  p:\n    " + strings.ReplaceAll(strings.TrimSpace(lines), "\n", "\n    ") + "\n"
}

const whole = "egress: all\ntasks: all\ngithub: all\nrepositories: all\nsecrets: all\n"

// TestRunsAreGoverned: a run is held to its effective policy, which is kept with it; one
// that asks for more is refused before anything starts.
//
// probe: T1
// oracle: the same request under profiles that allow it
func TestRunsAreGoverned(t *testing.T) {
	security := func(object string) func(string) string {
		return func(body string) string {
			return strings.TrimSuffix(body, "}") + `,"opts":{"security":` + object + `}}`
		}
	}
	same := func(body string) string { return body }
	for name, test := range map[string]struct {
		profile, allows string
		body            string
		change          func(string) string
		code            api.Code
		detail          string
	}{
		"another policy":     {"egress: [strict]\ntasks: all", whole, command("true", `"egress":"open"`), same, api.CodePolicyDenied, "profiles.p.egress"},
		"any host":           {"egress: [strict]\ntasks: all", whole, command("true", `"unrestrictedEgress":true`), same, api.CodePolicyDenied, "profiles.p.egress"},
		"a shell":            {"egress: all\ntasks: [call.agent]", whole, command("true"), same, api.CodePolicyDenied, "profiles.p.tasks"},
		"another tier":       {whole + "tiers: [small]", whole, command("true", `"tier":"standard"`), same, api.CodePolicyDenied, "profiles.p.tiers"},
		"another agent":      {whole + "agents: [pi]", whole, command("true"), same, api.CodePolicyDenied, "profiles.p.agents"},
		"another image":      {whole + "images: [other:1]", whole, command("true", `"sandboxImage":"agent:test"`), same, api.CodePolicyDenied, "profiles.p.images"},
		"a weak backend":     {whole + "isolation: machine", whole, command("true"), same, api.CodePolicyDenied, "profiles.p.isolation"},
		"another provider":   {whole + "providers: [docker]", whole, command("true"), security(`{"sandbox": {"provider": "cube"}}`), api.CodePolicyDenied, "profiles.p.providers"},
		"a policy, as asked": {"egress: [strict]\ntasks: all", whole, command("true"), security(`{"networkPolicy": "open"}`), api.CodePolicyDenied, "profiles.p.egress"},
		"two policies":       {whole, whole, command("true", `"egress":"open"`), security(`{"networkPolicy": "strict"}`), api.CodePolicyDenied, "opts.security.networkPolicy"},
		"another profile":    {whole, whole, command("true"), security(`{"executionProfile": "q"}`), api.CodePolicyDenied, "no profile"},
		"no approval":        {whole + "approval: required", whole, command("true"), same, api.CodePolicyDenied, "profiles.p.approval"},
		"a secret":           {"egress: all\ntasks: all", whole, command("true"), security(`{"secrets": ["s"]}`), api.CodePolicyDenied, "profiles.p.secrets"},
		"an unknown secret":  {whole, whole, command("true"), security(`{"secrets": ["r"]}`), api.CodePolicyDenied, "installation.secrets"},
		"a misspelt wish":    {whole, whole, command("true"), security(`{"sandbx": {}}`), api.CodeInvalidRequest, "sandbx"},
	} {
		t.Run(name, func(t *testing.T) {
			_, profiles := withProfiles(t, governed(test.profile))
			h := start(t, profiles)
			resp, data := h.do("POST", "/v1/executions", test.change(test.body))
			var p api.Problem
			if err := json.Unmarshal(data, &p); err != nil || p.Code != test.code || !strings.Contains(p.Detail, test.detail) {
				t.Errorf("%s %s, %v", resp.Status, data, err)
			}
			if p.Code == api.CodePolicyDenied && (resp.StatusCode != 403 || p.Details["rule"] == nil) {
				t.Errorf("%s without its rule: %s", resp.Status, data)
			}
			if entries, err := os.ReadDir(filepath.Join(h.config.State, "executions")); err != nil || len(entries) != 0 {
				t.Errorf("something was begun: %v, %v", entries, err)
			}
			if test.code != api.CodePolicyDenied || test.profile == test.allows {
				return
			}
			_, profiles = withProfiles(t, governed(test.allows))
			h = start(t, profiles, secret("s", "the-value-of-the-secret"))
			if res := h.finish(h.begin(test.change(test.body))); !res.Success || res.EffectivePolicy == nil {
				t.Errorf("control: %+v", res)
			}
		})
	}
}

// TestEffectivePolicyIsKept: a run gets what its profile chooses and no more, and the
// policy is in its result and in its record.
func TestEffectivePolicyIsKept(t *testing.T) {
	_, profiles := withProfiles(t, governed("egress: [open, strict]\ntasks: all\nproviderKeys: none\nproviders: [cube]\ntime: 1m"))
	h := start(t, profiles)
	if err := h.executor.Know("the-token-of-a-tenant", caller.Caller{Tenant: "acme", Principal: "p", Rights: caller.Run | caller.Read}); err != nil {
		t.Fatal(err)
	}
	const keys = `echo "${ANTHROPIC_API_KEY:-none}"`
	id := h.begin(command(keys, `"timeoutMs":3600000`))
	res := h.finish(id)
	p := res.EffectivePolicy
	if !res.Success || res.Output != "none\n" || p == nil || p.NetworkPolicy != "open" || res.Receipt.Policy != "open" || p.Provider != "cube" || p.Backend != "docker" ||
		p.TTLMS != 60_000 || p.PolicyVersion != 4 || len(p.Narrowings) != 1 || p.Narrowings[0].Rule != "profiles.p.time" || p.Digest == "" {
		t.Errorf("result %+v\npolicy %+v", res, p)
	}
	var kept api.EffectivePolicy
	data, err := os.ReadFile(filepath.Join(h.config.State, "executions", id, "policy.json"))
	if err != nil || json.Unmarshal(data, &kept) != nil || kept.Digest != p.Digest {
		t.Errorf("the record has %s, %v", data, err)
	}
	resp, data := h.do("POST", "/v1/executions", command(keys), "Authorization", "Bearer the-token-of-a-tenant")
	if res := decode[api.Result](t, resp, data, 200); !res.Success || res.EffectivePolicy.Tenant != "acme" || res.Receipt.Policy != "strict" {
		t.Errorf("a tenant's run: %s", data)
	}
	open, _ := h.do("POST", "/v1/executions", command(keys, `"egress":"open"`), "Authorization", "Bearer the-token-of-a-tenant")
	if open.StatusCode != 403 {
		t.Errorf("a tenant with a policy that it lacks: %s", open.Status)
	}

	plain := start(t)
	if res := plain.finish(plain.begin(command(keys))); !res.Success || res.Output == "none\n" || res.EffectivePolicy == nil || res.EffectivePolicy.EffectiveProfile != "standard" || res.Receipt.Policy != "strict" {
		t.Errorf("without a file: %+v", res)
	}
}

// TestTimeIsNarrowed: a run ends at the time of its profile, whatever it asks for.
func TestTimeIsNarrowed(t *testing.T) {
	_, profiles := withProfiles(t, governed(whole+"time: 1s"))
	h := start(t, profiles)
	res := h.finish(h.begin(command("sleep 60", `"timeoutMs":600000`)))
	wantCode(t, res, api.CodeTimeout)
	if fmt.Sprint(res.Error.Details["timeoutMs"]) != "1000" {
		t.Errorf("details %v", res.Error.Details)
	}
}

// TestBudgets: a run whose models take more than its budget ends with that; one whose
// budget is what they take does not.
func TestBudgets(t *testing.T) {
	used := start(t).recorded("demo", "true").Usage
	tokens := used.InputTokens + used.OutputTokens + used.CacheReadTokens + used.CacheCreationTokens
	if used.CostUSD <= 0 || tokens <= 1 {
		t.Fatalf("the recording uses %+v", used)
	}
	for _, test := range []struct {
		lines, security string
		exceeds         bool
	}{
		{fmt.Sprintf("tokens: %d", tokens), `{}`, false},
		{fmt.Sprintf("tokens: %d", tokens-1), `{}`, true},
		{fmt.Sprintf("tokens: %d", tokens), fmt.Sprintf(`{"budgets": {"tokens": %d}}`, tokens-1), true},
		{fmt.Sprintf("costUsd: %.6f", used.CostUSD+0.000001), `{}`, false},
		{fmt.Sprintf("costUsd: %.6f", used.CostUSD/2), `{}`, true},
	} {
		_, profiles := withProfiles(t, governed(whole+test.lines))
		h := start(t, profiles)
		h.recorded("demo", "[ "+map[bool]string{true: "1", false: ""}[test.exceeds]+" ] && sleep 60; true")
		res := h.finish(h.begin(strings.TrimSuffix(piRequest, "}") + `,"opts":{"security":` + test.security + `}}`))
		if !test.exceeds {
			if !res.Success {
				t.Errorf("%s, %s: %+v", test.lines, test.security, res.Error)
			}
			continue
		}
		wantCode(t, res, api.CodeBudget)
		if res.StopReason != "error_quota" || len(res.Error.Details) != 2 {
			t.Errorf("%s, %s: %s, %v", test.lines, test.security, res.StopReason, res.Error.Details)
		}
	}
}

// TestSpellingsOfARun: what a run's workflow and task ask for is read from metadata as from
// security, each on its own level.
func TestSpellingsOfARun(t *testing.T) {
	_, profiles := withProfiles(t, "version: 1\npolicyVersion: 1\ndefault: wide\nprofiles:\n"+
		"  wide: {egress: all, tasks: all, mode: none, approval: none}\n  narrow: {egress: [strict], tasks: all, mode: per-task, approval: none}\n")
	h := start(t, profiles)
	spelt := func(where, security string) string {
		if where == "security" {
			return `"security":` + security
		}
		return `"` + where + `":{"metadata":{"lightWorkflow":{"security":` + security + `}}}`
	}
	narrow := `{"executionProfile":"narrow"}`
	for what, opts := range map[string]string{
		"security":          spelt("security", narrow),
		"metadata":          `"metadata":{"lightWorkflow":{"security":` + narrow + `}}`,
		"both":              spelt("security", narrow) + `,"metadata":{"lightWorkflow":{"security":` + narrow + `}}`,
		"document":          spelt("document", narrow),
		"document and task": spelt("document", narrow) + `,"security":{"sandbox":{"mode":"per-task"}}`,
	} {
		res := h.post(strings.TrimSuffix(command("true"), "}") + `,"opts":{` + opts + `}}`)
		if !res.Success || res.EffectivePolicy.EffectiveProfile != "narrow" {
			t.Errorf("%s: %v, %+v", what, res.Error, res.EffectivePolicy)
		}
	}
	for opts, field := range map[string]string{
		`"metadata":{"lightWorkflow":{"security":{"sandbox":{"modus":"none"}}}}`:               "opts.metadata.lightWorkflow.security.sandbox",
		`"metadata":{"lightworkflow":{"security":{}}}`:                                         "opts.metadata.lightworkflow",
		`"document":{"security":{"executionprofile":"narrow"}}`:                                "opts.document.security",
		`"security":{"executionProfile":"narrow"},"metadata":{"lightWorkflow":{"security":7}}`: "opts.metadata.lightWorkflow.security",
	} {
		resp, data := h.do(http.MethodPost, "/v1/executions", strings.TrimSuffix(command("true"), "}")+`,"opts":{`+opts+`}}`)
		if p := decode[api.Problem](t, resp, data, http.StatusBadRequest); p.Details["field"] != field {
			t.Errorf("%s: %+v", opts, p)
		}
	}
	// A task is no wider than its document, whichever says what.
	resp, data := h.do(http.MethodPost, "/v1/executions", strings.TrimSuffix(command("true", `"egress":"open"`), "}")+`,"opts":{`+spelt("document", narrow)+`}}`)
	if p := decode[api.Problem](t, resp, data, http.StatusForbidden); p.Code != api.CodePolicyDenied {
		t.Errorf("%+v", p)
	}
}
