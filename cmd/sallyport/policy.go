package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/executor/policy"
	"sallyport/internal/strictyaml"
)

// policyCall is what "policy" is asked.
type policyCall struct {
	*app
	profiles, allow string // files; without profiles the executor is asked
	task            string // its name in the workflow
	json            bool
	api.RouteRequest
}

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Say what a workflow may do, and where its tasks run",
		Long: `Policy asks the executor what a workflow, or one of its tasks, may do at most, and where
a task runs; with --profiles it reads a file of profiles and the allowlist instead, and
knows of no executor's images, agents and tiers. WORKFLOW is a definition in YAML or
JSON, of which document, security and the named task are looked at; without one nothing
is asked for but what the flags say. The exit code is 4 where it is refused.`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c := &policyCall{app: a}
	resolve := policyPart("resolve", "Print the effective policy, with the reason of each narrowing", c, c.resolve)
	route := policyPart("route", "Say where a task runs: host, sandbox or denied", c, c.route)
	route.Flags().StringVar(&c.Destination, "to", "", "where a call goes: HOST[:PORT] or a URL")
	route.Flags().StringSliceVar(&c.Addresses, "address", nil, "an address that its name leads to; may be given several times")
	route.Flags().BoolVar(&c.Tools, "tools", false, "the agent may use tools or execute code")
	route.Flags().BoolVar(&c.Isolated, "isolated", false, "ask for a sandbox")
	cmd.AddCommand(resolve, route)
	return cmd
}

func policyPart(name, short string, c *policyCall, run func(context.Context) error) *cobra.Command {
	cmd := &cobra.Command{Use: name + " [WORKFLOW]", Short: short, Args: atMost(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if err := c.readWorkflow(args[0]); err != nil {
				return err
			}
		} else if c.task != "" {
			return usage("--task names a task of WORKFLOW, which is missing")
		}
		return run(cmd.Context())
	}
	cmd.Flags().StringVar(&c.profiles, "profiles", "", "a file of profiles, in place of the executor's")
	cmd.Flags().StringVarP(&c.allow, "file", "f", "", "the allowlist that goes with --profiles")
	cmd.Flags().StringVar(&c.Tenant, "tenant", "", "whose policy; by default the caller's own, with --profiles the operator's")
	cmd.Flags().StringVar(&c.task, "task", "", "name of a task of the workflow")
	cmd.Flags().StringVar(&c.TaskType, "type", "", "type of the task, such as run.shell, where its definition does not say it")
	cmd.Flags().BoolVar(&c.json, "json", false, "print the answer as JSON")
	return cmd
}

// readWorkflow takes document, security and the task out of a definition.
func (c *policyCall) readWorkflow(path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the workflow: %w", err)
	}
	data, err := yaml.YAMLToJSON(src)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var definition struct {
		Document json.RawMessage              `json:"document"`
		Security json.RawMessage              `json:"security"`
		Do       []map[string]json.RawMessage `json:"do"`
	}
	if err := json.Unmarshal(data, &definition); err != nil {
		return fmt.Errorf("%s: it is not a workflow: %w", path, err)
	}
	c.Document, c.Security = definition.Document, definition.Security
	if c.task == "" {
		return nil
	}
	if c.Task = findTask(definition.Do, c.task); c.Task == nil {
		return usage("%s has no task %q", path, c.task)
	}
	return nil
}

// findTask looks for a task in a list and in those of its tasks.
func findTask(do []map[string]json.RawMessage, name string) json.RawMessage {
	for _, entry := range do {
		for key, task := range entry {
			if key == name {
				return task
			}
			var below struct {
				Do []map[string]json.RawMessage `json:"do"`
			}
			if json.Unmarshal(task, &below) == nil {
				if found := findTask(below.Do, name); found != nil {
					return found
				}
			}
		}
	}
	return nil
}

func (c *policyCall) resolve(ctx context.Context) error {
	if c.profiles != "" {
		e, _, err := c.locally(true)
		if err != nil {
			return c.refusal(err)
		}
		return c.printPolicy(e.EffectivePolicy)
	}
	executor, err := c.client()
	if err != nil {
		return err
	}
	p, err := executor.Resolve(ctx, c.PolicyRequest)
	if err != nil {
		return c.refusal(err)
	}
	return c.printPolicy(p)
}

func (c *policyCall) route(ctx context.Context) error {
	var r api.Route
	if c.profiles != "" {
		e, gate, err := c.locally(false)
		if err != nil {
			return c.refusal(err)
		}
		call, err := policy.NewCall(c.RouteRequest)
		if err != nil {
			return usage("%w", err)
		}
		if r, err = e.Route(ctx, c.TaskType, call, gate); err != nil {
			return err
		}
	} else {
		executor, err := c.client()
		if err != nil {
			return err
		}
		if r, err = executor.Route(ctx, c.RouteRequest); err != nil {
			return c.refusal(err)
		}
	}
	if err := c.printRoute(r); err != nil || r.Route != api.RouteDenied {
		return err
	}
	return errRefused
}

// locally resolves by files alone. What of a type is not approved is refused, or, of
// a route, left for it to deny.
func (c *policyCall) locally(approved bool) (*policy.Effective, policy.Gate, error) {
	ps, err := c.loadProfiles(c.profiles)
	if err != nil {
		return nil, nil, err
	}
	policies, err := c.load(c.allowlist(c.allow))
	if err != nil {
		return nil, nil, err
	}
	q, err := policy.NewQuery(c.Tenant, c.PolicyRequest)
	if err != nil {
		return nil, nil, usage("%w", err)
	}
	if c.TaskType = q.TaskType; !approved {
		q.TaskType = ""
	}
	in := policy.Installed{Backends: []policy.Backend{{Name: "docker", Isolation: policy.Container}}, Egress: map[string]string{}, DefaultEgress: "strict"}
	for _, name := range policies.Names() {
		p, _ := policies.Policy(name)
		in.Egress[name] = p.Digest()
		if !p.Any() {
			in.Bounded = append(in.Bounded, name)
		}
	}
	e, denial := ps.Resolve(q, in)
	if denial != nil {
		return nil, nil, denial.Problem()
	}
	return e, policy.Allowlist{Policies: policies.Policies}, nil
}

// loadProfiles reads a file of profiles, and prints its faults one on a line.
func (a *app) loadProfiles(path string) (*policy.Profiles, error) {
	ps, err := policy.Load(path)
	faults, ok := errors.AsType[strictyaml.FileErrors](err)
	if !ok {
		return ps, err
	}
	for _, fault := range faults {
		fmt.Fprintln(a.stderr, terminal.Safe(fault.Error()))
	}
	return nil, &exitError{code: exitFailed}
}

// refusal makes a denial the command's answer.
func (c *policyCall) refusal(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.CodePolicyDenied {
		return &exitError{code: exitRefused, err: p}
	}
	return err
}

func (c *policyCall) printPolicy(p api.EffectivePolicy) error {
	if c.json {
		return c.printJSON(p)
	}
	printPolicy(c.stdout, p)
	return nil
}

func (c *policyCall) printRoute(r api.Route) error {
	if c.json {
		return c.printJSON(r)
	}
	c.print("%s runs: %s\n  %s\n", terminal.Safe(cmp.Or(r.TaskType, "the task")), r.Route, terminal.Safe(r.Reason))
	if r.Session != "" {
		c.print("  session  %s\n", r.Session)
	}
	if d := r.Destination; d != nil {
		verdict := "refused"
		if d.Allowed {
			verdict = "allowed"
		}
		text := fmt.Sprintf("  %s:%d is %s under %s (%s) %s", d.Host, d.Port, verdict, r.Policy.NetworkPolicy, d.Reason, d.Detail)
		c.print("%s\n", strings.TrimRight(text, " "))
		for _, a := range d.Addresses {
			if a.Allowed {
				c.print("  address  %s may be dialled\n", a.Address)
			} else {
				c.print("  address  %s is refused: %s\n", a.Address, terminal.Safe(a.Detail))
			}
		}
	}
	return nil
}

func (c *policyCall) printJSON(v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = c.stdout.Write(append(terminal.SafeJSON(data), '\n'))
	return err
}

// printPolicy prints an effective policy for a person.
func printPolicy(w io.Writer, p api.EffectivePolicy) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	asked := cmp.Or(p.RequestedProfile, "no profile")
	list := func(names []string) string { return cmp.Or(strings.Join(names, ", "), "none") }
	bound := func(ms int64) string {
		if ms == 0 {
			return "unlimited"
		}
		return (time.Duration(ms) * time.Millisecond).String()
	}
	rows := [][2]string{
		{"profile", fmt.Sprintf("%s (asked for: %s), policyVersion %d, tenant %s", p.EffectiveProfile, asked, p.PolicyVersion, cmp.Or(p.Tenant, "none: the operator"))},
		{"sandbox", fmt.Sprintf("%s, provider %s, backend %s (%s)", p.SandboxMode, p.Provider, p.Backend, p.Isolation)},
		{"template", fmt.Sprintf("%s: image %s, agent %s, tier %s", cmp.Or(p.Template, "none"), cmp.Or(p.Image, "the default"), cmp.Or(p.Agent, "the default"), cmp.Or(p.Tier, "the default"))},
		{"egress", p.NetworkPolicy + " " + p.NetworkPolicyDigest},
		{"tasks", list(p.ApprovedTaskTypes)},
		{"GitHub", "profiles " + list(p.Github.Profiles) + "; repositories " + list(p.Github.Repositories)},
		{"keys", list(p.ProviderKeys)},
		{"secrets", list(p.Secrets) + " (" + p.SecretPolicy + ")"},
		{"gateways", list(p.Gateways)},
		{"time", bound(p.TTLMS) + ", idle " + bound(p.IdleTimeoutMS)},
		{"budgets", budgets(p)},
		{"approval", p.Approval},
		{"digest", p.Digest},
	}
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\n", row[0], terminal.Safe(row[1]))
	}
	t.Flush()
	for _, n := range p.Narrowings {
		fmt.Fprintf(w, "narrowed: %s: from %s to %s: %s\n", terminal.Safe(n.Field), terminal.Safe(n.From), terminal.Safe(n.To), terminal.Safe(n.Reason))
	}
}

func budgets(p api.EffectivePolicy) string {
	var parts []string
	if p.CostUSD > 0 {
		parts = append(parts, fmt.Sprintf("$%g", p.CostUSD))
	}
	if p.Tokens > 0 {
		parts = append(parts, fmt.Sprintf("%d tokens", p.Tokens))
	}
	return cmp.Or(strings.Join(parts, ", "), "unlimited")
}
