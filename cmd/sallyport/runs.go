package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/show"
	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/executor/client"
)

func (a *app) runsCommand() *cobra.Command {
	q := client.Query{Limit: api.DefaultListLimit}
	var all, asJSON bool
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List the runs that the executor keeps, newest first",
		Example: `  sallyport runs --state running
  sallyport runs --task nightly-review --limit 5`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case all && cmd.Flags().Changed("limit"):
				return usage("--all and --limit contradict each other")
			case q.Limit < 1 || q.Limit > api.ListLimit:
				return usage("--limit %d must be from 1 to %d; --all lists every run", q.Limit, api.ListLimit)
			}
			if all {
				q.Limit = api.ListLimit
			}
			return a.runs(cmd.Context(), q, all, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.State, "state", "", "queued, running or finished ones only")
	f.StringVar(&q.TaskID, "task", "", "those of this task only")
	f.StringVarP(&q.Policy, "policy", "p", "", "those under this policy only")
	f.StringVar(&q.Agent, "agent", "", "those of this agent only")
	f.StringVar(&q.Before, "before", "", "those before this run only")
	f.IntVarP(&q.Limit, "limit", "n", q.Limit, "at most so many")
	f.BoolVar(&all, "all", false, "every run, however many there are")
	f.BoolVar(&asJSON, "json", false, "print them as JSON, one on a line")
	return cmd
}

func (a *app) runs(ctx context.Context, q client.Query, all, asJSON bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	defer t.Flush()
	for seen := 0; ; {
		page, err := c.List(ctx, q)
		if err != nil {
			return err
		}
		if seen == 0 && !asJSON && len(page.Executions) > 0 {
			fmt.Fprintln(t, "RUN\tACCEPTED\tSTATE\tTOOK\tREFUSED\tPOLICY\tAGENT\tTASK")
		}
		for _, x := range page.Executions {
			if asJSON {
				err = a.printJSON(x, "")
			} else {
				_, err = fmt.Fprintln(t, row(x))
			}
			if err != nil {
				return err
			}
			seen++
		}
		if q.Before = page.Next; q.Before == "" || !all {
			break
		}
	}
	if q.Before != "" {
		fmt.Fprintf(a.stderr, "there are more: --before %s, or --all\n", q.Before)
	}
	return nil
}

// row is the line of one run in the table.
func row(x api.ExecutionSummary) string {
	state, took, refused := x.State, "", ""
	if o := x.Outcome; o != nil {
		state, took, refused = "failed: "+string(o.Code), terminal.Duration(o.DurationMS), fmt.Sprint(o.Refused)
		if o.Success {
			state = "succeeded"
		}
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", x.ID, x.AcceptedAt.Local().Format(time.DateTime), terminal.Cell(state), took, refused, terminal.Cell(x.Policy), terminal.Cell(x.Agent), terminal.Cell(x.TaskID))
}

func (a *app) logsCommand() *cobra.Command {
	var follow, asJSON bool
	var after int64
	cmd := &cobra.Command{
		Use:   "logs RUN",
		Short: "Show the events of a run",
		Args:  exactly("RUN, the identifier of a run,"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.logs(cmd.Context(), args[0], after, follow, asJSON)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the run has ended")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the events as they are, one on a line")
	cmd.Flags().Int64Var(&after, "after", 0, "begin after the event of this number")
	return cmd
}

func (a *app) logs(ctx context.Context, id string, after int64, follow, asJSON bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	view := &show.View{Out: a.stdout, Whole: true}
	for ev, err := range c.Events(ctx, id, after, follow) {
		switch {
		case err != nil:
			return err
		case asJSON:
			err = a.printJSON(ev, "")
		default:
			view.Event(ev)
			if ev.Type == api.EventResult && ev.Result != nil {
				fmt.Fprintln(a.stdout)
				err = show.Result(a.stdout, ev.Result)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// printJSON prints v on standard output.
func (a *app) printJSON(v any, indent string) error {
	data, err := json.MarshalIndent(v, "", indent)
	if indent == "" && err == nil {
		data, err = json.Marshal(v)
	}
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(append(terminal.SafeJSON(data), '\n'))
	return err
}

// A canceller ends a run on the executor as soon as both are known: that it
// shall end, and its identifier.
type canceller struct {
	client *client.Client
	stderr io.Writer

	mu    sync.Mutex // guards what follows
	id    string
	asked bool
	sent  bool
	calls sync.WaitGroup
}

// name says what the run is called.
func (c *canceller) name(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id = id
	c.send()
}

// ask asks for the end of the run.
func (c *canceller) ask() {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.stderr, "cancelling the run; again to leave at once")
	c.asked = true
	c.send()
}

// send makes the call once. It is called with mu held.
func (c *canceller) send() {
	if !c.asked || c.id == "" || c.sent {
		return
	}
	c.sent = true
	id := c.id
	c.calls.Go(func() {
		ctx, stop := context.WithTimeout(context.Background(), cancelTimeout)
		defer stop()
		if _, err := c.client.Cancel(ctx, id); err != nil {
			fmt.Fprintln(c.stderr, "the run could not be cancelled:", terminal.Safe(err.Error()))
		}
	})
}

// wait waits for a call under way.
func (c *canceller) wait() { c.calls.Wait() }
