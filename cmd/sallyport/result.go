package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// printResult prints what came of a run: one line on it, its artifacts and its
// receipt.
func printResult(w io.Writer, r *api.Result) error {
	fmt.Fprintln(w, safe(summary(r)))
	if r.Error != nil {
		fmt.Fprintf(w, "%s: %s\n", r.Error.Code, safe(r.Error.Message))
	}
	if r.OutputTruncated {
		fmt.Fprintln(w, "The output was cut at the executor's bound.")
	}
	if r.Github != nil {
		fmt.Fprintln(w, safe(gitHubText(r.Github)))
	}
	if err := printArtifacts(w, r.Artifacts); err != nil {
		return err
	}
	if err := printReceipt(w, r.Receipt); err != nil {
		return err
	}
	return printRemedy(w, r.Receipt)
}

func summary(r *api.Result) string {
	outcome := "failed"
	if r.Success {
		outcome = "succeeded"
	}
	parts := []string{fmt.Sprintf("Run %s %s after %s", r.ExecutionID, outcome, duration(r.DurationMS))}
	if r.Turns > 0 {
		parts = append(parts, fmt.Sprintf("%d turns", r.Turns))
	}
	if in := r.InputTokens + r.CacheCreationInputTokens + r.CacheReadInputTokens; in+r.OutputTokens > 0 {
		parts = append(parts, fmt.Sprintf("%s tokens in, %s out", countText(in), countText(r.OutputTokens)))
	}
	if r.CostUSD > 0 {
		parts = append(parts, fmt.Sprintf("$%.4f", r.CostUSD))
	}
	if r.StopReason != "" && r.StopReason != "success" {
		parts = append(parts, "stop reason "+r.StopReason)
	}
	return strings.Join(parts, ", ") + "."
}

func duration(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func printArtifacts(w io.Writer, artifacts []api.Artifact) error {
	if len(artifacts) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ARTIFACT\tSIZE\tSHA256")
	for _, f := range artifacts {
		if f.Skipped != "" {
			fmt.Fprintf(t, "%s\t\tskipped: %s\n", cell(f.Name), cell(f.Skipped))
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", cell(f.Name), bytesText(f.Size), f.SHA256)
	}
	return t.Flush()
}

// cell makes s fit for a table.
func cell(s string) string { return oneLine(strings.ReplaceAll(s, "\t", " "), 120) }

// printReceipt prints what the run reached and was refused. A name that was
// looked up and then connected to has the row of its connections only.
func printReceipt(w io.Writer, r account.Receipt) error {
	fmt.Fprintf(w, "\nReceipt of policy %s, %s\n", safe(r.Policy), safe(r.Digest))
	for _, c := range r.Changes {
		what := "changed to " + safe(c.Digest)
		if c.Digest == "" {
			what = "gone from the allowlist: everything is denied"
		}
		fmt.Fprintf(w, "%s: the policy is %s (generation %d)\n", c.Time.UTC().Format("15:04:05"), what, c.Generation)
	}
	rows := slices.DeleteFunc(slices.Clone(r.Hosts), func(h account.ReceiptHost) bool {
		return h.Kind == account.KindDNS && h.Verdict == firewall.Allow && connected(r, h.Host)
	})
	if len(rows) == 0 {
		fmt.Fprintln(w, "The run asked for nothing outside.")
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "HOST\tPORT\tVERDICT\tREASON\tCOUNT\tUP\tDOWN")
	for _, h := range rows {
		port := fmt.Sprint(h.Port)
		if h.Kind == account.KindDNS {
			port = "dns"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", cell(h.Host), port, h.Verdict, h.Reason, h.Count, bytesText(h.BytesUp), bytesText(h.BytesDown))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range overflow(r) {
		fmt.Fprintf(w, "and %s\n", sumText(s))
	}
	return nil
}

// overflow are the sums of the decisions without a row. A receipt of before they
// were summed has their count only.
func overflow(r account.Receipt) []account.VerdictSum {
	if len(r.OverflowSums) == 0 && r.Overflow > 0 {
		return []account.VerdictSum{{Count: r.Overflow}}
	}
	return r.OverflowSums
}

func sumText(s account.VerdictSum) string {
	text := fmt.Sprintf("%d decisions about further hosts", s.Count)
	if s.Verdict != "" {
		text += fmt.Sprintf(" (%s), %s up, %s down", s.Verdict, bytesText(s.BytesUp), bytesText(s.BytesDown))
	}
	return safe(text)
}

// connected reports whether the receipt has a connection to host.
func connected(r account.Receipt, host string) bool {
	return slices.ContainsFunc(r.Hosts, func(h account.ReceiptHost) bool {
		return h.Host == host && h.Kind != account.KindDNS
	})
}
