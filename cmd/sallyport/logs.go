package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"sallyport/executor/api"
)

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
	view := &view{out: a.stdout, whole: true}
	for ev, err := range c.Events(ctx, id, after, follow) {
		switch {
		case err != nil:
			return err
		case asJSON:
			err = a.printJSON(ev, "")
		default:
			view.event(ev)
			if ev.Type == api.EventResult && ev.Result != nil {
				fmt.Fprintln(a.stdout)
				err = printResult(a.stdout, ev.Result)
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
	_, err = a.stdout.Write(append(safeJSON(data), '\n'))
	return err
}
