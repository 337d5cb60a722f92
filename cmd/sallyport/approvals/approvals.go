// Package approvals is the command that lists what waits for an approval, shows it, and
// decides about it.
package approvals

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/executor/client"
)

// A Command is what the command line has for it. All fields are required.
type Command struct {
	Client func() (*client.Client, error)
	Out    io.Writer
	// Exactly takes the arguments that names name.
	Exactly func(names ...string) cobra.PositionalArgs
}

const long = `Approvals are of one very version of a profile, a task or a worker. A version that nobody has
approved is pending once a run of it was asked for, and the run is refused. Who decides needs
the right "approve", and is not among those who asked, unless it is the operator's token.`

// Cobra makes the command.
func (c *Command) Cobra() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List, show and decide what has to be approved before it runs",
		Long:  long,
		Example: `  sallyport approvals list --state pending --tenant acme
  sallyport approvals show 01m7xs3ty1hj73cr72jnejwmy0
  sallyport approvals approve 01m7xs3ty1hj73cr72jnejwmy0 --comment "reviewed"`,
		Args: c.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.list(), c.show(),
		c.decision(client.Approve, "Approve this version"),
		c.decision(client.Refuse, "Refuse this version"),
		c.decision(client.Withdraw, "Withdraw an approval, or a request for one; runs that rely on it end"))
	return cmd
}

func (c *Command) list() *cobra.Command {
	var state string
	var asJSON bool
	cmd := &cobra.Command{Use: "list", Short: "List approvals, newest first", Args: c.Exactly()}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.printList(cmd.Context(), state, asJSON) }
	cmd.Flags().StringVar(&state, "state", "", "pending, approved, refused or withdrawn ones only")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print them as JSON, one on a line")
	return cmd
}

func (c *Command) printList(ctx context.Context, state string, asJSON bool) error {
	executor, err := c.Client()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	defer t.Flush()
	for before, first := "", true; first || before != ""; first = false {
		page, err := executor.Approvals(ctx, state, before)
		if err != nil {
			return err
		}
		if first && !asJSON && len(page.Approvals) > 0 {
			fmt.Fprintln(t, "APPROVAL\tSTATE\tTENANT\tKIND\tNAME\tTIER\tDIGEST")
		}
		for _, a := range page.Approvals {
			if asJSON {
				err = c.printJSON(a)
			} else {
				_, err = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", terminal.Cell(a.ID), terminal.Cell(a.State), terminal.Cell(a.Tenant),
					terminal.Cell(a.Kind), terminal.Cell(a.Name), terminal.Cell(a.Tier), terminal.Cell(a.Digest))
			}
			if err != nil {
				return err
			}
		}
		before = page.Next
	}
	return nil
}

func (c *Command) show() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "show APPROVAL", Short: "Show what is to be approved, and what became of it", Args: c.Exactly("APPROVAL, an identifier,")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		executor, err := c.Client()
		if err != nil {
			return err
		}
		a, err := executor.Approval(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if asJSON {
			return c.printJSON(a)
		}
		return c.print(a)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	return cmd
}

// print shows an approval to a person, its definition last.
func (c *Command) print(a api.Approval) error {
	t := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"approval", a.ID}, {"of", fmt.Sprintf("the %s %s, tenant %s", a.Kind, a.Name, cmp.Or(a.Tenant, "none: the operator"))},
		{"version", a.Digest}, {"state", a.State}, {"seq", fmt.Sprint(a.Seq)}, {"tier", cmp.Or(a.Tier, "no bound of its own")},
	} {
		fmt.Fprintf(t, "%s\t%s\n", row[0], terminal.Safe(row[1]))
	}
	for _, ev := range a.History {
		fmt.Fprintf(t, "%d\t%s\n", ev.Seq, terminal.Safe(step(ev)))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var definition any
	if err := json.Unmarshal(a.Definition, &definition); err != nil {
		return fmt.Errorf("the definition: %w", err)
	}
	text, err := json.MarshalIndent(definition, "", "  ")
	if err == nil {
		_, err = c.Out.Write(append(terminal.SafeJSON(text), '\n'))
	}
	return err
}

// step is a sentence about one step.
func step(ev api.ApprovalEvent) string {
	who := ev.Principal
	if ev.PrincipalTenant != "" {
		who = ev.PrincipalTenant + "/" + who
	}
	text := fmt.Sprintf("%s %s by %s", ev.Time.Local().Format(time.DateTime), ev.Type, who)
	if ev.Tier != "" {
		text += ", for the tier " + ev.Tier
	}
	if ev.Comment != "" {
		text += ": " + ev.Comment
	}
	return text
}

// decision makes the command of one decision.
func (c *Command) decision(what, short string) *cobra.Command {
	var d api.ApprovalDecision
	cmd := &cobra.Command{Use: what + " APPROVAL", Short: short, Args: c.Exactly("APPROVAL, an identifier,")}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return c.decide(cmd.Context(), args[0], what, d) }
	cmd.Flags().StringVarP(&d.Comment, "comment", "m", "", "why, for whoever reads the record")
	cmd.Flags().Int64Var(&d.Seq, "seq", 0, "the seq that was shown; by default the one that it has now")
	if what == client.Approve {
		cmd.Flags().StringVar(&d.Tier, "tier", "", "the most that its runs get")
	}
	return cmd
}

func (c *Command) decide(ctx context.Context, id, what string, d api.ApprovalDecision) error {
	executor, err := c.Client()
	if err != nil {
		return err
	}
	if d.Seq == 0 {
		seen, err := executor.Approval(ctx, id)
		if err != nil {
			return err
		}
		d.Seq = seen.Seq
	}
	a, err := executor.Decide(ctx, id, what, d)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.Out, "%s: the %s %s is %s (%s)\n", terminal.Safe(a.ID), a.Kind, terminal.Safe(a.Name), a.State, terminal.Safe(a.Digest))
	return err
}

func (c *Command) printJSON(v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = c.Out.Write(append(terminal.SafeJSON(text), '\n'))
	}
	return err
}
