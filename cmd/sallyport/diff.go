package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/review"
)

func (a *app) diffCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Say what a change of the allowlist opens and closes",
		Long: `Diff reads two allowlists and says for each policy what a sandbox can reach under
one of them only. It compares what the files come to, not how they are written. It
exits 0 where they come to the same, 1 where they differ, 2 where one cannot be read.`,
		Args: exactly("OLD, an allowlist,", "NEW, an allowlist,"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.diff(args[0], args[1], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the differences as JSON")
	return cmd
}

func (a *app) diff(oldPath, newPath string, asJSON bool) error {
	var both [2]*allowlist.File
	for i, path := range []string{oldPath, newPath} {
		var err error
		if both[i], err = a.load(path); err != nil {
			return &exitError{code: exitUsage, err: fmt.Errorf("%s is no allowlist to compare", path)}
		}
	}
	changes := review.Diff(both[0].Policies, both[1].Policies)
	if asJSON {
		if err := a.printJSON(struct {
			Policies []review.PolicyDiff `json:"policies"`
		}{append([]review.PolicyDiff{}, changes...)}, "  "); err != nil {
			return err
		}
	} else {
		printDiff(a.stdout, changes)
	}
	if len(changes) > 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}

// printDiff prints differences for a person.
func printDiff(w io.Writer, changes []review.PolicyDiff) {
	if len(changes) == 0 {
		fmt.Fprintln(w, "Every policy lets a sandbox reach the same.")
	}
	for _, c := range changes {
		word := ""
		switch {
		case c.Added:
			word = " is new"
		case c.Removed:
			word = " is gone"
		}
		fmt.Fprintf(w, "policy %s%s\n", terminal.Safe(c.Policy), word)
		for _, r := range c.Opens {
			fmt.Fprintf(w, "  opens   %s\n", r)
		}
		for _, r := range c.Closes {
			fmt.Fprintf(w, "  closes  %s\n", r)
		}
		for _, b := range c.Budgets {
			word := "closes"
			if b.Widens {
				word = "opens"
			}
			fmt.Fprintf(w, "  %-6s  budget %s: %s, was %s\n", word, b.Budget, b.Is, b.Was)
		}
		switch c.ECH {
		case "pass":
			fmt.Fprintln(w, "  opens   TLS hellos that hide the host's real name (ech: pass)")
		case "refuse":
			fmt.Fprintln(w, "  closes  TLS hellos that hide the host's real name (ech: refuse)")
		}
	}
}
