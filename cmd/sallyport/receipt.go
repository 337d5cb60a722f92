package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sallyport/executor/api"
	"sallyport/executor/client"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// grownBytes is the least number of bytes that counts as grown traffic.
const grownBytes = 100_000

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

// A target is what a receipt counts: a host and a port, 0 for look-ups alone.
type target struct {
	host string
	port uint16
}

func (t target) String() string {
	if t.port == 0 {
		return cell(t.host) + " (dns)"
	}
	return fmt.Sprintf("%s:%d", cell(t.host), t.port)
}

// A traffic is what a run had to do with a target.
type traffic struct {
	verdicts map[string]bool // "allow (listed)"
	up, down int64
}

func (t *traffic) String() string {
	text := ""
	for _, v := range slices.Sorted(maps.Keys(t.verdicts)) {
		if text != "" {
			text += " and "
		}
		text += v
	}
	return text
}

// targets gathers a receipt. Look-ups of a host that was connected to are left out.
func targets(r account.Receipt) map[target]*traffic {
	all := make(map[target]*traffic)
	for _, h := range r.Hosts {
		if h.Kind == account.KindDNS && h.Verdict == firewall.Allow && connected(r, h.Host) {
			continue
		}
		at := target{h.Host, h.Port}
		if all[at] == nil {
			all[at] = &traffic{verdicts: make(map[string]bool)}
		}
		all[at].verdicts[fmt.Sprintf("%s (%s)", h.Verdict, h.Reason)] = true
		all[at].up += h.BytesUp
		all[at].down += h.BytesDown
	}
	return all
}

// printReceiptDiff prints one line for each difference, and reports whether there
// was any.
func printReceiptDiff(w io.Writer, was, is account.Receipt, factor float64) (differ bool) {
	say := func(word, format string, args ...any) {
		differ = true
		fmt.Fprintf(w, "%-8s %s\n", word, safe(fmt.Sprintf(format, args...)))
	}
	if was.Policy != is.Policy || was.Digest != is.Digest {
		say("policy", "%s, %s; it was %s, %s", is.Policy, is.Digest, was.Policy, was.Digest)
	}
	before, after := targets(was), targets(is)
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, at := range slices.SortedFunc(maps.Keys(both), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
	}) {
		old, now := before[at], after[at]
		switch {
		case old == nil:
			say("new", "%s %s, %s up, %s down", at, now, bytesText(now.up), bytesText(now.down))
			continue
		case now == nil:
			say("gone", "%s %s", at, old)
			continue
		case old.String() != now.String():
			say("changed", "%s %s; it was %s", at, now, old)
		}
		if grew(old.up, now.up, factor) {
			say("grown", "%s %s up; it was %s", at, bytesText(now.up), bytesText(old.up))
		}
		if grew(old.down, now.down, factor) {
			say("grown", "%s %s down; it was %s", at, bytesText(now.down), bytesText(old.down))
		}
	}
	diffSums(say, overflow(was), overflow(is), factor)
	return differ
}

// diffSums is for what had no row of its own.
func diffSums(say func(word, format string, args ...any), was, is []account.VerdictSum, factor float64) {
	for _, now := range is {
		i := slices.IndexFunc(was, func(s account.VerdictSum) bool { return s.Verdict == now.Verdict })
		switch {
		case i < 0:
			say("new", "%s", sumText(now))
		case grew(was[i].BytesUp, now.BytesUp, factor) || grew(was[i].BytesDown, now.BytesDown, factor):
			say("grown", "%s; it was %s", sumText(now), sumText(was[i]))
		}
	}
}

func grew(was, is int64, factor float64) bool {
	return is >= grownBytes && float64(is) >= factor*float64(was)
}
