package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/show"
	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/executor/client"
	"sallyport/firewall/account"
	"sallyport/firewall/review"
)

func (a *app) receiptCommand() *cobra.Command {
	receipt := &cobra.Command{
		Use:   "receipt",
		Short: "Compare what runs reached and were refused",
		Args:  atMost(0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var factor float64
	diff := &cobra.Command{
		Use:   "diff RUN | diff OLD NEW",
		Short: "Say what a run reached and was refused that an earlier one was not",
		Long: `Diff compares the receipts of two runs: hosts that are new and gone, verdicts that
changed, and traffic that grew. With one RUN, it is compared with the last run before
it that had the same task, which is opts.taskId of the request or "sallyport run
--task". A run is named by its identifier or by a .json file with its result. It exits
0 where both come to the same, 1 where they differ, 2 where there is no earlier run.`,
		Example: "  sallyport receipt diff 01jd2q\n  sallyport receipt diff yesterday.json today.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("RUN is missing")
			}
			return atMost(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if factor <= 1 {
				return usage("--factor %v is no growth: write a number above 1", factor)
			}
			return a.receiptDiff(cmd.Context(), args, factor)
		},
	}
	diff.Flags().Float64Var(&factor, "factor", 3, "traffic that grew by this factor is told, from 100 kB on")
	receipt.AddCommand(diff)
	return receipt
}

func (a *app) receiptDiff(ctx context.Context, runs []string, factor float64) error {
	is, err := a.result(ctx, runs[len(runs)-1])
	if err != nil {
		return err
	}
	var was *api.Result
	if len(runs) == 2 {
		was, err = a.result(ctx, runs[0])
	} else {
		was, err = a.resultBefore(ctx, is.ExecutionID)
	}
	if err != nil {
		return err
	}
	if !printReceiptDiff(a.stdout, was.Receipt, is.Receipt, factor) {
		fmt.Fprintln(a.stdout, "Both runs reached and were refused the same.")
		return nil
	}
	return &exitError{code: exitFailed}
}

// resultBefore is the result of the last run before this one that had the same task
// and got as far as to have a receipt.
func (a *app) resultBefore(ctx context.Context, id string) (*api.Result, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	run, err := c.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if run.TaskID == "" {
		return nil, usage("run %s has no task (opts.taskId, sallyport run --task), so none comes before it: name both runs", id)
	}
	for q := (client.Query{TaskID: run.TaskID, State: api.StateFinished, Before: id}); ; {
		page, err := c.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, earlier := range page.Executions {
			result, err := a.result(ctx, earlier.ID)
			if err != nil {
				return nil, err
			}
			if result.Receipt.Policy != "" {
				fmt.Fprintf(a.stderr, "compared with run %s of %s\n", earlier.ID, earlier.AcceptedAt.Local().Format(time.DateTime))
				return result, nil
			}
		}
		if q.Before = page.Next; q.Before == "" {
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("there is no run of the task %q before %s", run.TaskID, id)}
		}
	}
}

// maxResult bounds a file that holds a result, in bytes.
const maxResult = 256 << 20

// result finds the result of a run: an identifier, or a file that holds it.
func (a *app) result(ctx context.Context, run string) (*api.Result, error) {
	if strings.HasSuffix(run, ".json") || strings.ContainsRune(run, filepath.Separator) {
		return readResult(run)
	}
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	execution, err := c.Get(ctx, run)
	if err != nil {
		return nil, err
	}
	if execution.Result == nil {
		return nil, fmt.Errorf("run %s is %s: its receipt comes when it has ended", run, execution.State)
	}
	return execution.Result, nil
}

// readResult reads a result, or the executor's answer about a run, from a file.
func readResult(path string) (*api.Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the result of a run: %w", err)
	}
	defer f.Close()
	var read struct {
		api.Result
		Answer *api.Result `json:"result"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxResult)).Decode(&read); err != nil {
		return nil, fmt.Errorf("read the result of a run from %s: %w", path, err)
	}
	result := &read.Result
	if read.Answer != nil {
		result = read.Answer
	}
	if result.Receipt.Policy == "" {
		return nil, fmt.Errorf("%s holds no result of a run", path)
	}
	return result, nil
}

// printReceiptDiff prints one line for each difference, and reports whether there
// was any.
func printReceiptDiff(w io.Writer, was, is account.Receipt, factor float64) (differ bool) {
	say := func(word, format string, args ...any) {
		differ = true
		fmt.Fprintf(w, "%-8s %s\n", word, terminal.Safe(fmt.Sprintf(format, args...)))
	}
	if was.Policy != is.Policy || was.Digest != is.Digest {
		say("policy", "%s, %s; it was %s, %s", is.Policy, is.Digest, was.Policy, was.Digest)
	}
	for _, d := range review.DiffReceipts(was, is, factor) {
		at := targetText(d)
		switch {
		case d.Was == nil:
			say("new", "%s %s, %s up, %s down", at, verdictsText(d.Is), terminal.Bytes(d.Is.BytesUp), terminal.Bytes(d.Is.BytesDown))
		case d.Is == nil:
			say("gone", "%s %s", at, verdictsText(d.Was))
		case d.Changed():
			say("changed", "%s %s; it was %s", at, verdictsText(d.Is), verdictsText(d.Was))
		}
		if d.GrewUp {
			say("grown", "%s %s up; it was %s", at, terminal.Bytes(d.Is.BytesUp), terminal.Bytes(d.Was.BytesUp))
		}
		if d.GrewDown {
			say("grown", "%s %s down; it was %s", at, terminal.Bytes(d.Is.BytesDown), terminal.Bytes(d.Was.BytesDown))
		}
	}
	for _, d := range review.DiffSums(was, is, factor) {
		if d.Was == nil {
			say("new", "%s", show.Sum(d.Is))
		} else {
			say("grown", "%s; it was %s", show.Sum(d.Is), show.Sum(*d.Was))
		}
	}
	return differ
}

func targetText(d review.ReceiptDiff) string {
	if d.Port == 0 {
		return terminal.Cell(d.Host) + " (dns)"
	}
	return fmt.Sprintf("%s:%d", terminal.Cell(d.Host), d.Port)
}

func verdictsText(t *review.Traffic) string { return strings.Join(t.Verdicts, " and ") }
