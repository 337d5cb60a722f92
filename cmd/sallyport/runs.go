package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

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
		state, took, refused = "failed: "+string(o.Code), duration(o.DurationMS), fmt.Sprint(o.Refused)
		if o.Success {
			state = "succeeded"
		}
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", x.ID, x.AcceptedAt.Local().Format(time.DateTime), cell(state), took, refused, cell(x.Policy), cell(x.Agent), cell(x.TaskID))
}
