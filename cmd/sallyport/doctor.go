package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/client"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the stack, and that nothing gets out of a sandbox",
		Long: `Doctor finds the token and the executor, asks whether gate and engine are ready, and
has the executor try to get out of a real cell by every way it knows, which takes some
seconds. It prints one line for each check and exits 1 if one fails.`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.doctor(cmd.Context()) },
	}
}

// An examination prints findings and remembers whether one was bad.
type examination struct {
	app *app
	bad bool
}

func (e *examination) finding(ok bool, name, detail string) {
	mark := "ok  "
	if !ok {
		mark, e.bad = "FAIL", true
	}
	fmt.Fprintf(e.app.stdout, "%s  %-24s  %s\n", mark, terminal.OneLine(name, 60), terminal.OneLine(detail, 400))
}

// end is the outcome of the examination as an error.
func (e *examination) end() error {
	if e.bad {
		return &exitError{code: exitFailed}
	}
	return nil
}

func (a *app) doctor(ctx context.Context) error {
	e := &examination{app: a}
	c, err := a.anonymous()
	if err != nil {
		return err
	}
	token, from, err := a.findToken()
	if err != nil {
		e.finding(false, "token", err.Error())
	} else {
		e.finding(true, "token", "from "+from)
		c.Token = token
	}
	health, err := c.Health(ctx)
	if err != nil {
		e.finding(false, "executor", err.Error())
		return &exitError{code: exitCode(err)}
	}
	e.finding(true, "executor", fmt.Sprintf("%s, version %s", c.Addr, health.Version))
	ready, err := c.Ready(ctx)
	if err != nil {
		e.finding(false, "readiness", err.Error())
		return &exitError{code: exitCode(err)}
	}
	for _, check := range ready.Checks {
		detail := check.Detail
		if check.Ready && detail == "" {
			detail = "ready"
		}
		e.finding(check.Ready, check.Name, detail)
	}
	if c.Token == "" {
		return e.end()
	}
	return a.examineBoundary(ctx, c, e)
}

func (a *app) examineBoundary(ctx context.Context, c *client.Client, e *examination) error {
	fmt.Fprintln(a.stderr, "trying to get out of a cell ...")
	report, err := c.BoundaryCheck(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e.finding(false, "boundary check", err.Error())
		return &exitError{code: exitFailed}
	}
	for _, f := range report.Findings {
		e.finding(f.Passed, f.Name, f.Detail)
	}
	for _, w := range report.Warnings {
		fmt.Fprintf(a.stdout, "warn  %-24s  %s\n", "host", terminal.OneLine(w, 400))
	}
	e.finding(report.Passed, "boundary", fmt.Sprintf("%d probes on %s", len(report.Findings), report.Engine))
	return e.end()
}
