package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sallyport/executor/api"
	"sallyport/firewall"
)

// A kind is what the table says of a type of task.
type kind string

const (
	onHost    kind = "host"    // control plane: no policy is asked
	inSandbox kind = "sandbox" // never on the host
	byPolicy  kind = "policy"
)

// kinds is the table of the types of task there are. One that is not in it is denied.
var kinds = map[string]kind{
	"ask": onHost, "assert": onHost, "set": onHost, "switch": onHost,
	"context.merge": onHost, "task.claim": onHost, "task.complete": onHost, "process.persist": onHost,

	"run.shell": inSandbox, "run.script": inSandbox, "run.container": inSandbox,
	"browser": inSandbox, "tenant.code": inSandbox, "filesystem.write": inSandbox, "mcp.server": inSandbox,
	"command": inSandbox, "release.build": inSandbox, "release.package": inSandbox,

	"call.http": byPolicy, "call.jsonrpc": byPolicy, "call.mcp": byPolicy, "call.agent": byPolicy, "call.rule": byPolicy,
}

// TaskTypes are all types with what the table says of them: host, sandbox or policy.
func TaskTypes() map[string]string {
	types := map[string]string{}
	for name, k := range kinds {
		types[name] = string(k)
	}
	return types
}

// approvable are the types that a profile has to name, sorted.
func approvable() []string {
	return slices.DeleteFunc(sortedKeys(kinds), func(t string) bool { return kinds[t] == onHost })
}

// A Gate judges destinations by the policies that it has in force.
type Gate interface {
	// Judge says what a policy of the allowlist says of a host, and of the addresses that
	// its name led to. An error means that it could not be asked, which denies.
	Judge(ctx context.Context, policy, host string, port uint16, addrs []netip.Addr) (api.Destination, error)
}

// Allowlist is a Gate of policies that are at hand. One that it does not have denies.
type Allowlist struct{ *firewall.Policies }

// Judge decides as the gate does.
func (a Allowlist) Judge(_ context.Context, policy, host string, port uint16, addrs []netip.Addr) (api.Destination, error) {
	p, _ := a.Policy(policy)
	d, refusals := p.Judge(host, port, addrs)
	return Judged(host, port, addrs, d, refusals), nil
}

// Judged is a judgement of the firewall's as callers get it.
func Judged(host string, port uint16, addrs []netip.Addr, d firewall.Decision, refusals []string) api.Destination {
	to := api.Destination{Host: firewall.Escape(host, 253), Port: port, Allowed: d.Allowed(), Reason: string(d.Reason), Rule: d.Rule, Group: d.Group, Line: d.Line, Detail: d.Detail}
	for i, addr := range addrs {
		judged := api.JudgedAddress{Address: firewall.Escape(addr.String(), 80), Detail: "it was not judged"}
		if i < len(refusals) {
			judged.Allowed, judged.Detail = refusals[i] == "", refusals[i]
		}
		to.Addresses = append(to.Addresses, judged)
	}
	return to
}

// A Call is what is asked about a task's way beside its type.
type Call struct {
	Host            string // of its destination; empty for none
	Port            uint16
	Addrs           []netip.Addr
	Tools, Isolated bool
}

// Route says where a task of a type runs under an effective policy: on the host, in a
// sandbox, or nowhere. It fails closed: what is not known, not approved, or could not be
// judged does not run on the host.
func (e *Effective) Route(ctx context.Context, taskType string, c Call, gate Gate) (api.Route, error) {
	r := api.Route{Route: api.RouteDenied, TaskType: taskType, Kind: string(kinds[taskType]), Policy: e.EffectivePolicy}
	switch kinds[taskType] {
	case onHost:
		r.Route, r.Reason = api.RouteHost, "control plane: it has no effects outside of the workflow"
		return r, nil
	case "":
		r.Reason = "the type of task is not known" + suggest(taskType, sortedKeys(kinds)) + "; known are " + strings.Join(sortedKeys(kinds), ", ")
		return r, nil
	}
	if tasks, ok := e.Bounds[Tasks].(Set); !ok || !tasks.Has(taskType) {
		r.Reason = fmt.Sprintf("the type of task is not approved: of those that are %s has %s", quote(e.EffectiveProfile), strings.Join(e.ApprovedTaskTypes, ", "))
		return r, nil
	}
	if kinds[taskType] == inSandbox {
		e.sandbox(&r, "its type runs in a sandbox only")
		return r, nil
	}
	return r, e.byPolicy(ctx, &r, c, gate)
}

// sandbox routes a task there, if there is one.
func (e *Effective) sandbox(r *api.Route, why string) {
	r.Reason = why
	switch e.Bounds[SandboxMode] {
	case None:
		r.Reason += ", and the mode is none: there is none"
		return
	case PerTask:
		r.Session = "task"
	default:
		r.Session = "workflow-instance"
	}
	r.Route = api.RouteSandbox
}

// byPolicy routes what may run on the host.
func (e *Effective) byPolicy(ctx context.Context, r *api.Route, c Call, gate Gate) error {
	switch {
	case r.TaskType == "call.agent" && c.Tools:
		e.sandbox(r, "the agent may use tools or execute code")
	case c.Isolated:
		e.sandbox(r, "isolation is asked for")
	case r.TaskType == "call.agent":
		r.Route, r.Reason = api.RouteHost, "a bounded call of a model without tools"
	case r.TaskType == "call.rule":
		r.Route, r.Reason = api.RouteHost, "no isolation is asked for"
	case c.Host == "":
		e.sandbox(r, "no destination is given that could be judged: the gate judges it there")
	default:
		return e.destination(ctx, r, c, gate)
	}
	return nil
}

// destination routes a call by what the gate's policy says of where it goes.
func (e *Effective) destination(ctx context.Context, r *api.Route, c Call, gate Gate) error {
	d, err := gate.Judge(ctx, e.NetworkPolicy, c.Host, c.Port, c.Addrs)
	if err != nil {
		return fmt.Errorf("judge the destination: %w", err)
	}
	r.Destination = &d
	unjudged := slices.ContainsFunc(d.Addresses, func(a api.JudgedAddress) bool { return !a.Allowed }) || len(d.Addresses) != len(c.Addrs)
	name, _ := firewall.ParseName(c.Host)
	gateways, _ := e.Bounds[Gateways].(Set)
	switch {
	case !d.Allowed || unjudged:
		r.Reason = fmt.Sprintf("the egress policy %s refuses the destination (%s)", quote(e.NetworkPolicy), d.Reason)
	case r.TaskType == "call.mcp" && !gateways.Has(name.String()):
		e.sandbox(r, "the MCP server is not an approved gateway")
	case d.Reason == string(firewall.ReasonOpen):
		e.sandbox(r, "the egress policy allows any host: only one that it names is called from the host itself")
	case len(c.Addrs) == 0:
		e.sandbox(r, "no addresses are given: the host calls only those that were judged, the gate judges its own")
	default:
		r.Route, r.Reason = api.RouteHost, fmt.Sprintf("the egress policy %s allows the destination and its addresses", quote(e.NetworkPolicy))
	}
	return nil
}

// TaskTypeOf is the type of a task by its definition: run.shell where it has run with
// shell, call.http where it has "call": "http", set where it has set; "" where it says
// none.
func TaskTypeOf(task json.RawMessage) (string, error) {
	members, err := object(task, "task")
	if err != nil {
		return "", err
	}
	var found []string
	if raw, ok := members["call"]; ok {
		s, err := text(raw, "task.call")
		if err != nil {
			return "", err
		}
		found = append(found, "call."+s)
	}
	run, err := object(members["run"], "task.run")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"shell", "script", "container", "workflow"} {
		if _, ok := run[name]; ok {
			found = append(found, "run."+name)
		}
	}
	for name := range members {
		if kinds[name] == onHost {
			found = append(found, name)
		}
	}
	if len(found) > 1 {
		slices.Sort(found)
		return "", wrong("task", "it is of several types: %s", strings.Join(found, ", "))
	}
	return first(found), nil
}
