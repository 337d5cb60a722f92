// Package show prints what runs do for a person: their events as they come, and their
// results with artifacts, receipt and what would allow what was refused.
//
// All that comes out of a sandbox is made safe for a terminal first.
package show

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/firewall/account"
)

// Result prints what came of a run: one line on it, its artifacts and its
// receipt.
func Result(w io.Writer, r *api.Result) error {
	fmt.Fprintln(w, terminal.Safe(summary(r)))
	if r.Error != nil {
		fmt.Fprintf(w, "%s: %s\n", r.Error.Code, terminal.Safe(r.Error.Message))
	}
	if r.OutputTruncated {
		fmt.Fprintln(w, "The output was cut at the executor's bound.")
	}
	if r.Github != nil {
		fmt.Fprintln(w, terminal.Safe(gitHubText(r.Github)))
	}
	if err := Artifacts(w, r.Artifacts); err != nil {
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
	parts := []string{fmt.Sprintf("Run %s %s after %s", r.ExecutionID, outcome, terminal.Duration(r.DurationMS))}
	if r.Turns > 0 {
		parts = append(parts, fmt.Sprintf("%d turns", r.Turns))
	}
	if in := r.InputTokens + r.CacheCreationInputTokens + r.CacheReadInputTokens; in+r.OutputTokens > 0 {
		parts = append(parts, fmt.Sprintf("%s tokens in, %s out", terminal.Count(in), terminal.Count(r.OutputTokens)))
	}
	if r.CostUSD > 0 {
		parts = append(parts, fmt.Sprintf("$%.4f", r.CostUSD))
	}
	if r.StopReason != "" && r.StopReason != "success" {
		parts = append(parts, "stop reason "+r.StopReason)
	}
	return strings.Join(parts, ", ") + "."
}

// Artifacts prints a table of them, nothing for none.
func Artifacts(w io.Writer, artifacts []api.Artifact) error {
	if len(artifacts) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ARTIFACT\tSIZE\tSHA256")
	for _, f := range artifacts {
		if f.Skipped != "" {
			fmt.Fprintf(t, "%s\t\tskipped: %s\n", terminal.Cell(f.Name), terminal.Cell(f.Skipped))
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", terminal.Cell(f.Name), terminal.Bytes(f.Size), f.SHA256)
	}
	return t.Flush()
}

// printReceipt prints what the run reached and was refused. A name that was
// looked up and then connected to has the row of its connections only.
func printReceipt(w io.Writer, r account.Receipt) error {
	fmt.Fprintf(w, "\nReceipt of policy %s, %s\n", terminal.Safe(r.Policy), terminal.Safe(r.Digest))
	for _, c := range r.Changes {
		what := "changed to " + terminal.Safe(c.Digest)
		if c.Digest == "" {
			what = "gone from the allowlist: everything is denied"
		}
		fmt.Fprintf(w, "%s: the policy is %s (generation %d)\n", c.Time.UTC().Format("15:04:05"), what, c.Generation)
	}
	rows := r.Rows()
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", terminal.Cell(h.Host), port, h.Verdict, h.Reason, h.Count, terminal.Bytes(h.BytesUp), terminal.Bytes(h.BytesDown))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, s := range r.Sums() {
		fmt.Fprintf(w, "and %s\n", Sum(s))
	}
	return nil
}

// Sum is what decisions without a row come to, in words.
func Sum(s account.VerdictSum) string {
	text := fmt.Sprintf("%d decisions about further hosts", s.Count)
	if s.Verdict != "" {
		text += fmt.Sprintf(" (%s), %s up, %s down", s.Verdict, terminal.Bytes(s.BytesUp), terminal.Bytes(s.BytesDown))
	}
	return terminal.Safe(text)
}

// gitHubText is one line on what a run could do on GitHub.
func gitHubText(g *api.GithubReceipt) string {
	parts := []string{fmt.Sprintf("GitHub: profile %s on %s/{%s}", g.Profile, g.Owner, strings.Join(g.Repositories, ","))}
	if !g.Downscoped {
		parts = append(parts, "by a static token, which NOTHING NARROWS")
	}
	if g.Refreshed > 0 {
		parts = append(parts, fmt.Sprintf("%d fresh tokens", g.Refreshed))
	}
	if g.Checkout != "" {
		parts = append(parts, "checkout "+g.Checkout)
	}
	if g.AppKey {
		parts = append(parts, "with the App's PRIVATE KEY in the sandbox")
	}
	switch {
	case g.Revoked:
		parts = append(parts, "revoked")
	case g.RevokeError != "":
		parts = append(parts, "NOT REVOKED yet: "+g.RevokeError)
	}
	return strings.Join(parts, ", ") + "."
}
