package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/policy"
	"sallyport/firewall"
	"sallyport/firewall/allowlist"
)

func gate(t testing.TB, text string) policy.Allowlist {
	t.Helper()
	policies, err := allowlist.Parse(strings.NewReader(text), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return policy.Allowlist{Policies: policies.Policies}
}

var (
	public  = netip.MustParseAddr("140.82.121.3")
	private = netip.MustParseAddr("10.0.0.1")
)

const routing = `version: 1
policies:
  strict: {allow: [api.github.com, mcp.acme.example, mcp.other.example, {host: in.acme.example, private: [10.0.0.0/8]}]}
  open: {allow: any}
`

const modal = `version: 1
policyVersion: 1
default: p
profiles:
  p: {mode: none, egress: all, tasks: all, gateways: [mcp.acme.example]}
  few: {egress: all, tasks: [call.http]}
`

// TestRoute is the table of types, modes and destinations.
//
// probe: T2
// oracle: the same call to a destination, from an address or under a policy that allows it
func TestRoute(t *testing.T) {
	listed, other := policy.Call{Host: "api.github.com", Port: 443, Addrs: []netip.Addr{public}}, policy.Call{Host: "example.com", Port: 443, Addrs: []netip.Addr{public}}
	gateway, server := policy.Call{Host: "mcp.acme.example", Port: 443, Addrs: []netip.Addr{public}}, policy.Call{Host: "mcp.other.example", Port: 443, Addrs: []netip.Addr{public}}
	for _, test := range []struct {
		name, taskType, mode, egress, profile string
		call                                  policy.Call
		route, session, reason                string
	}{
		{"control plane", "set", "per-task", "", "few", policy.Call{}, "host", "", "control plane"},
		{"control plane without a sandbox", "switch", "none", "", "p", policy.Call{}, "host", "", "control plane"},
		{"a shell", "run.shell", "per-task", "", "p", policy.Call{}, "sandbox", "task", "sandbox only"},
		{"a shell of a session", "run.shell", "workflow-session", "", "p", policy.Call{}, "sandbox", "workflow-instance", ""},
		{"a shell by default", "run.script", "effectful-tasks", "", "p", policy.Call{}, "sandbox", "workflow-instance", ""},
		{"a shell without a sandbox", "run.shell", "none", "", "p", policy.Call{}, "denied", "", "mode is none"},
		{"a server's process", "mcp.server", "per-task", "", "p", policy.Call{}, "sandbox", "task", ""},
		{"not approved", "run.shell", "per-task", "", "few", policy.Call{}, "denied", "", "is not approved"},
		{"approved", "call.http", "per-task", "", "few", listed, "host", "", "allows the destination"},
		{"unknown", "run.shel", "per-task", "", "p", policy.Call{}, "denied", "", `did you mean "run.shell"`},
		{"no type", "", "per-task", "", "p", policy.Call{}, "denied", "", "not known"},

		{"a listed host", "call.http", "effectful-tasks", "strict", "p", listed, "host", "", ""},
		{"a listed host without a sandbox", "call.jsonrpc", "none", "strict", "p", listed, "host", "", ""},
		{"with isolation", "call.http", "effectful-tasks", "strict", "p", policy.Call{Host: listed.Host, Port: 443, Addrs: listed.Addrs, Isolated: true}, "sandbox", "workflow-instance", "asked for"},
		{"another host", "call.http", "effectful-tasks", "strict", "p", other, "denied", "", "not_listed"},
		{"another host under any", "call.http", "effectful-tasks", "open", "p", other, "sandbox", "workflow-instance", "any host"},
		{"under any without a sandbox", "call.http", "none", "open", "p", other, "denied", "", "mode is none"},
		{"another port", "call.http", "effectful-tasks", "strict", "p", policy.Call{Host: listed.Host, Port: 22, Addrs: listed.Addrs}, "denied", "", "port_not_listed"},
		{"a private address", "call.http", "effectful-tasks", "strict", "p", policy.Call{Host: listed.Host, Port: 443, Addrs: []netip.Addr{public, private}}, "denied", "", "address_refused"},
		{"one that is admitted", "call.http", "effectful-tasks", "strict", "p", policy.Call{Host: "in.acme.example", Port: 443, Addrs: []netip.Addr{private}}, "host", "", ""},
		{"metadata", "call.http", "effectful-tasks", "open", "p", policy.Call{Host: "metadata.google.internal", Port: 80, Addrs: []netip.Addr{public}}, "denied", "", "floor_name"},
		{"an address for a name", "call.http", "effectful-tasks", "open", "p", policy.Call{Host: "169.254.169.254", Port: 80}, "denied", "", "bad_name"},
		{"no addresses", "call.http", "effectful-tasks", "strict", "p", policy.Call{Host: listed.Host, Port: 443}, "sandbox", "workflow-instance", "no addresses"},
		{"no destination", "call.http", "effectful-tasks", "strict", "p", policy.Call{}, "sandbox", "workflow-instance", "no destination"},
		{"no destination and no sandbox", "call.http", "none", "strict", "p", policy.Call{}, "denied", "", "mode is none"},

		{"a gateway", "call.mcp", "effectful-tasks", "strict", "p", gateway, "host", "", ""},
		{"an external server", "call.mcp", "effectful-tasks", "strict", "p", server, "sandbox", "workflow-instance", "not an approved gateway"},
		{"a server that is refused", "call.mcp", "effectful-tasks", "strict", "p", other, "denied", "", "not_listed"},
		{"a model", "call.agent", "effectful-tasks", "", "p", policy.Call{}, "host", "", "bounded"},
		{"a model with tools", "call.agent", "effectful-tasks", "", "p", policy.Call{Tools: true}, "sandbox", "workflow-instance", "tools"},
		{"a rule", "call.rule", "effectful-tasks", "", "p", policy.Call{}, "host", "", ""},
		{"a rule with isolation", "call.rule", "per-task", "", "p", policy.Call{Isolated: true}, "sandbox", "task", ""},
	} {
		security, _ := json.Marshal(map[string]any{"executionProfile": test.profile, "sandbox": map[string]any{"mode": test.mode}})
		q := query(t, policy.Operator, "", string(security), "")
		if test.egress != "" {
			q = query(t, policy.Operator, "", string(security), `{"security": {"networkPolicy": "`+test.egress+`"}}`)
		}
		e, denial := parse(t, modal).Resolve(q, policy.Installed{DefaultEgress: "strict"})
		if denial != nil {
			t.Errorf("%s: %v", test.name, denial)
			continue
		}
		r, err := e.Route(t.Context(), test.taskType, test.call, gate(t, routing))
		if err != nil || r.Route != test.route || r.Session != test.session || !strings.Contains(r.Reason, test.reason) || r.Reason == "" {
			t.Errorf("%s: %+v, %v; want %s, %s, %s", test.name, r, err, test.route, test.session, test.reason)
		}
		if test.call.Host != "" && !test.call.Isolated && (r.Destination == nil || r.Destination.Reason == "" || r.Destination.Allowed != (r.Route == "host" || strings.Contains(r.Reason, "any host") || r.Route == "sandbox")) {
			t.Errorf("%s: destination %+v", test.name, r.Destination)
		}
	}
}

// TestRouteIsMonotonic: no stricter mode moves a task to the host.
func TestRouteIsMonotonic(t *testing.T) {
	rank := map[string]int{api.RouteHost: 1, api.RouteSandbox: 0, api.RouteDenied: 0}
	for taskType := range policy.TaskTypes() {
		for _, call := range []policy.Call{{}, {Tools: true}, {Isolated: true}, {Host: "api.github.com", Port: 443, Addrs: []netip.Addr{public}}, {Host: "example.com", Port: 443, Addrs: []netip.Addr{public}}} {
			before := 1
			for _, mode := range []string{"none", "effectful-tasks", "workflow-session", "per-task"} {
				e, denial := parse(t, modal).Resolve(query(t, policy.Operator, "", `{"sandbox": {"mode": "`+mode+`"}}`, ""), policy.Installed{DefaultEgress: "strict"})
				if denial != nil {
					t.Fatal(denial)
				}
				r, err := e.Route(t.Context(), taskType, call, gate(t, routing))
				if err != nil || rank[r.Route] > before {
					t.Errorf("%s, %+v, mode %s: %+v, %v", taskType, call, mode, r, err)
				}
				before = rank[r.Route]
			}
		}
	}
}

type deaf struct{}

func (deaf) Judge(context.Context, string, string, uint16, []netip.Addr) (api.Destination, error) {
	return api.Destination{}, errors.New("the gate is gone")
}

// careless allows a name and forgets its addresses.
type careless struct{}

func (careless) Judge(context.Context, string, string, uint16, []netip.Addr) (api.Destination, error) {
	return api.Destination{Allowed: true, Reason: string(firewall.ReasonListed)}, nil
}

// TestRouteWithoutGate: what cannot be judged is denied.
func TestRouteWithoutGate(t *testing.T) {
	e, denial := parse(t, modal).Resolve(policy.Query{Tenant: policy.Operator}, policy.Installed{DefaultEgress: "strict"})
	if denial != nil {
		t.Fatal(denial)
	}
	call := policy.Call{Host: "api.github.com", Port: 443, Addrs: []netip.Addr{public}}
	if r, err := e.Route(t.Context(), "call.http", call, deaf{}); err == nil || r.Route != api.RouteDenied {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := e.Route(t.Context(), "call.http", call, careless{}); err != nil || r.Route != api.RouteDenied {
		t.Errorf("with an address that was not judged: %+v, %v", r, err)
	}
	if r, err := e.Route(t.Context(), "call.http", call, policy.Allowlist{}); err != nil || r.Route != api.RouteDenied {
		t.Errorf("without an allowlist: %+v, %v", r, err)
	}
	if r, err := e.Route(t.Context(), "call.http", call, gate(t, routing)); err != nil || r.Route != api.RouteHost {
		t.Errorf("control: %+v, %v", r, err)
	}
}

func TestTaskTypeOf(t *testing.T) {
	for task, want := range map[string]string{
		`{"run": {"shell": {"command": "x"}}, "metadata": {}}`: "run.shell", `{"call": "http", "with": {}}`: "call.http", `{"set": {"a": 1}}`: "set",
		`{"do": []}`: "", ``: "", `{"run": {"workflow": {}}}`: "run.workflow",
		`{"call": "http", "run": {"shell": {}}}`: "error", `{"call": "http", "set": {}}`: "error", `{"call": 1}`: "error", `{"run": "x"}`: "error", `{"call": "http", "call": "mcp"}`: "error",
	} {
		if got, err := policy.TaskTypeOf(json.RawMessage(task)); got != want && (want != "error" || err == nil) {
			t.Errorf("%s is %q, %v", task, got, err)
		}
	}
}
