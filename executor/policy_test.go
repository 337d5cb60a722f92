package executor_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/policy"
	"sallyport/firewall/allowlist"
	"sallyport/gate"
	"sallyport/gate/control"
	"sallyport/sniproxy/resolve"
)

const twoTenants = `version: 1
policyVersion: 7
default: standard
service: {time: 2h}
tenants:
  acme:
    profiles: all
    mode: workflow-session
    egress: [strict]
profiles:
  standard: {mode: none, egress: all, tasks: all, github: all, repositories: all, gateways: [mcp.example.com]}
`

// withProfiles puts a file of profiles into force.
func withProfiles(t *testing.T, text string) (path string, change func(*executor.Config)) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "profiles.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func(c *executor.Config) {
		var err error
		if c.Profiles, err = policy.Open(path, c.Log); err != nil {
			t.Fatal(err)
		}
	}
}

// withGate has a real gate judge, which leases nothing.
func withGate(t *testing.T, text string) func(*executor.Config) {
	t.Helper()
	policies, err := allowlist.Parse(strings.NewReader(text), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sp-gate-")
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", dir+"/control.sock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	daemon := &gate.Daemon{Allowlist: policies, Resolver: &resolve.Client{}, Log: slog.New(slog.DiscardHandler)}
	go func() { served <- daemon.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	client := &control.Client{Socket: dir + "/control.sock"}
	return func(c *executor.Config) { c.Gate, c.GateState = client, client }
}

const judging = "version: 1\npolicies:\n  strict: {allow: [api.example.com, mcp.example.com]}\n  open: {allow: any}\n"

// TestPolicyCalls: effective policies and routes over HTTP, judged by a real gate, and
// what is refused with its rule and line.
//
// probe: T1, T2
// oracle: the same question for the operator, under another policy, with an address that
// may be dialled
func TestPolicyCalls(t *testing.T) {
	path, profiles := withProfiles(t, twoTenants)
	h := start(t, profiles, withGate(t, judging))
	post := func(call, body string) (status int, p api.EffectivePolicy, r api.Route, problem api.Problem) {
		t.Helper()
		resp, answer := h.do("POST", "/v1/policy/"+call, body)
		var err error
		switch {
		case resp.StatusCode != 200:
			err = json.Unmarshal(answer, &problem)
		case call == "resolve":
			err = json.Unmarshal(answer, &p)
		default:
			err = json.Unmarshal(answer, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, p, r, problem
	}
	status, p, _, _ := post("resolve", `{}`)
	if status != 200 || p.Tenant != "" || p.SandboxMode != "none" || p.NetworkPolicy != "strict" || p.Backend != "docker" || p.Isolation != "container" ||
		p.Image != "agent:test" || p.Agent != "pi" || p.Tier != "standard" || !strings.HasPrefix(p.NetworkPolicyDigest, "sha256:") || p.TTLMS != 3600_000 || p.PolicyVersion != 7 {
		t.Errorf("the operator: %d %+v", status, p)
	}
	status, p, _, _ = post("resolve", `{"tenant": "acme", "document": {"metadata": {"lightWorkflow": {"security": {"sandbox": {"mode": "none"}}}}}}`)
	if status != 200 || p.SandboxMode != "workflow-session" || len(p.Narrowings) == 0 || p.Narrowings[0].Rule != "tenants.acme.mode" || p.Narrowings[0].Line != 8 || p.Narrowings[0].File != path {
		t.Errorf("a tenant: %d %+v", status, p)
	}
	for _, test := range []struct {
		call, body string
		status     int
		code       api.Code
		detail     string
	}{
		{"resolve", `{"tenant": "acme", "security": {"networkPolicy": "open"}}`, 403, api.CodePolicyDenied, ":9: tenants.acme.egress"},
		{"route", `{"tenant": "acme", "security": {"networkPolicy": "open"}, "taskType": "set"}`, 403, api.CodePolicyDenied, ":9: tenants.acme.egress"},
		{"resolve", `{"tenant": "other"}`, 403, api.CodePolicyDenied, "no tenant"},
		{"resolve", `{"security": {"sandbx": {}}}`, 400, api.CodeInvalidRequest, "sandbx"},
		{"resolve", `{"Tenant": "acme"}`, 400, api.CodeInvalidRequest, "unknown member"},
		{"resolve", `{"tenant": "acme", "tenant": ""}`, 400, api.CodeInvalidRequest, "given twice"},
		{"resolve", `{"destination": "x"}`, 400, api.CodeInvalidRequest, "unknown member"},
		{"resolve", `[]`, 400, api.CodeInvalidRequest, "object"},
		{"route", `{"taskType": "call.http", "destination": "ftp://a.example"}`, 400, api.CodeInvalidRequest, "destination"},
		{"route", `{"taskType": "call.http", "addresses": ["x"]}`, 400, api.CodeInvalidRequest, "addresses"},
		{"route", `{"taskType": "call.http", "task": {"run": {"shell": {}}}}`, 400, api.CodeInvalidRequest, "taskType"},
	} {
		status, _, _, problem := post(test.call, test.body)
		if status != test.status || problem.Code != test.code || !strings.Contains(problem.Detail, test.detail) {
			t.Errorf("%s %s: %d %+v", test.call, test.body, status, problem)
		}
		if status == 403 && (problem.Details["rule"] == nil || problem.Details["file"] == nil) {
			t.Errorf("%s: no rule in %+v", test.body, problem.Details)
		}
	}
	for body, want := range map[string]string{
		`{"task": {"set": {}}}`: "host", `{"tenant": "acme", "task": {"run": {"shell": {}}}}`: "sandbox", `{"task": {"run": {"shell": {}}}}`: "denied",
		`{"taskType": "call.http", "destination": "https://api.example.com/x", "addresses": ["140.82.121.3"]}`:                                                                "host",
		`{"taskType": "call.http", "destination": "https://api.example.com/x", "addresses": ["140.82.121.3", "169.254.169.254"]}`:                                             "denied",
		`{"taskType": "call.http", "destination": "https://api.example.com/x", "addresses": ["::ffff:10.0.0.1"]}`:                                                             "denied",
		`{"tenant": "acme", "taskType": "call.http", "destination": "api.example.com"}`:                                                                                       "sandbox",
		`{"taskType": "call.http", "destination": "evil.example.com", "addresses": ["140.82.121.3"]}`:                                                                         "denied",
		`{"security": {"networkPolicy": "open", "sandbox": {"mode": "per-task"}}, "taskType": "call.http", "destination": "evil.example.com", "addresses": ["140.82.121.3"]}`: "sandbox",
		`{"taskType": "call.mcp", "destination": "mcp.example.com", "addresses": ["140.82.121.3"]}`:                                                                           "host",
		`{"tenant": "acme", "taskType": "call.mcp", "destination": "api.example.com", "addresses": ["140.82.121.3"]}`:                                                         "sandbox",
	} {
		if status, _, r, problem := post("route", body); status != 200 || r.Route != want || r.Reason == "" {
			t.Errorf("%s: %d %+v %+v, want %s", body, status, r, problem, want)
		}
	}
	// A change is in force with the next request, and one with faults is not.
	for text, mode := range map[string]string{strings.Replace(twoTenants, "mode: workflow-session", "mode: per-task", 1): "per-task"} {
		for _, text := range []string{text, "version: 2\n"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if status, p, _, _ := post("resolve", `{"tenant": "acme"}`); status != 200 || p.SandboxMode != mode {
				t.Errorf("%q: %d %+v", text, status, p)
			}
		}
	}
	if !strings.Contains(h.log.String(), "profiles refused") {
		t.Error("the refused file is not logged")
	}
}
