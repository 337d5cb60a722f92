package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"sallyport/firewall"
)

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate an allowlist",
		Long: `Check reads an allowlist as the gate does. It prints every fault with its line and
what would be right, and exits 1; or the policies with their digests.`,
		Args: atMost(1),
		RunE: func(_ *cobra.Command, args []string) error {
			path := a.allowlist("")
			if len(args) > 0 {
				path = args[0]
			}
			policies, err := a.load(path)
			if err != nil {
				return err
			}
			for _, w := range policies.Warnings() {
				w.Problem = "warning: " + w.Problem
				fmt.Fprintln(a.stderr, safe(w.Error()))
			}
			for _, name := range policies.Names() {
				p, _ := policies.Policy(name)
				fmt.Fprintf(a.stdout, "policy %s %s\n", name, p.Digest())
			}
			fmt.Fprintf(a.stdout, "%s is right: %s\n", safe(path), policies.Digest())
			return nil
		},
	}
}

// allowlist is the file to read: flag, or what the environment names.
func (a *app) allowlist(flag string) string {
	if flag != "" {
		return flag
	}
	if path := a.getenv("SALLYPORT_ALLOWLIST"); path != "" {
		return path
	}
	const local, installed = "allowlist.yaml", "/etc/sallyport/allowlist.yaml"
	if _, err := os.Stat(local); err != nil {
		if _, err := os.Stat(installed); err == nil {
			return installed
		}
	}
	return local
}

// load reads an allowlist. It prints the faults itself, one on a line, as
// compilers do.
func (a *app) load(path string) (*firewall.Policies, error) {
	policies, err := firewall.Load(path)
	faults, ok := errors.AsType[firewall.FileErrors](err)
	if !ok {
		return policies, err
	}
	for _, fault := range faults {
		fmt.Fprintln(a.stderr, safe(fault.Error()))
	}
	return nil, &exitError{code: exitFailed}
}
