package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/review"
)

func (a *app) checkCommand() *cobra.Command {
	var strict bool
	var profiles string
	gitHub := &gitHubCheck{app: a}
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate an allowlist",
		Long: `Check reads an allowlist as the gate does. It prints every fault with its line and
what would be right, and exits 1; or the policies with their digests. Warnings are
about what is legal and probably not meant, such as an entry that another one
covers, or a budget that nothing reaches; with --strict they are faults. The gate's
settings in the environment, as they stand there for "make up", are checked, too: that
they have the proxies which "via:" names.

With --profiles it checks a file of profiles, too, and warns of policies that its
profiles name and the allowlist does not have.

With --github, --github-profiles or --run it also checks what runs may do on GitHub:
a file of profiles; whether a policy reaches GitHub at all, and hosts through which
an agent that may write could carry out what it reads; and whether a request, as it
is sent to the executor, asks for what it can get. GitHub is asked for the App and its
installation where the executor's settings for the App are in the environment.`,
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := a.allowlist("")
			if len(args) > 0 {
				path = args[0]
			}
			file, err := a.load(path)
			if err != nil {
				return err
			}
			warnings := a.warnings(path, file)
			gitHub.allow, gitHub.policies = path, file.Policies
			more, err := gitHub.gitHub(cmd.Context())
			if err != nil {
				return err
			}
			checked, missing, err := a.checkProfiles(profiles, file.Names())
			if err != nil {
				return err
			}
			if len(warnings)+more+missing > 0 && strict {
				return &exitError{code: exitFailed}
			}
			needs, err := a.missingProxies(path, file.Policies)
			if err != nil {
				return err
			}
			for _, name := range file.Names() {
				p, _ := file.Policy(name)
				fmt.Fprintf(a.stdout, "policy %s %s\n", name, p.Digest())
			}
			fmt.Fprintf(a.stdout, "%s is right: %s\n", terminal.Safe(path), file.Digest())
			if len(needs) > 0 {
				fmt.Fprintf(a.stdout, "It needs the gate to have in %s: %s\n", proxiesVariable, strings.Join(needs, ", "))
			}
			gitHub.print()
			fmt.Fprint(a.stdout, checked)
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "take warnings for faults")
	cmd.Flags().StringVar(&profiles, "profiles", "", "a file of profiles: who may run what")
	cmd.Flags().BoolVar(&gitHub.wanted, "github", false, "check access to GitHub, with the built-in profiles")
	cmd.Flags().StringVar(&gitHub.file, "github-profiles", "", "a file of GitHub profiles")
	cmd.Flags().StringVar(&gitHub.run, "run", "", "a file with the request of a run")
	return cmd
}

// checkProfiles reads the file of profiles at path, if there is one, and says what is to
// be said of it where all is well, and how many warnings it printed.
func (a *app) checkProfiles(path string, policies []string) (said string, warned int, err error) {
	if path == "" {
		return "", 0, nil
	}
	ps, err := a.loadProfiles(path)
	if err != nil {
		return "", 0, err
	}
	for _, w := range ps.Unknown(policies) {
		w.Problem = "warning: " + w.Problem
		fmt.Fprintln(a.stderr, terminal.Safe(w.Error()))
		warned++
	}
	return fmt.Sprintf("profiles %s\n%s is right: policyVersion %d, %s\n", strings.Join(ps.Names(), ", "), terminal.Safe(path), ps.Version(), ps.Digest()), warned, nil
}

// warnings prints the warnings about the allowlist at path, and returns them.
func (a *app) warnings(path string, file *allowlist.File) allowlist.FileErrors {
	redundant := review.Redundant(file)
	if _, ok := file.Policy("strict"); !ok {
		redundant = append(redundant, &allowlist.FileError{File: path,
			Problem: "there is no policy strict, which runs have that name none, and the executor's proof of its boundary needs"})
	}
	warnings := append(file.Warnings(), redundant...)
	slices.SortStableFunc(warnings, func(a, b *allowlist.FileError) int { return a.Line - b.Line })
	for _, w := range warnings {
		w.Problem = "warning: " + w.Problem
		fmt.Fprintln(a.stderr, terminal.Safe(w.Error()))
	}
	return warnings
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
func (a *app) load(path string) (*allowlist.File, error) {
	file, _, err := a.read(path)
	return file, err
}

// read is load, and gives the text, too: a pipe can be read only once.
func (a *app) read(path string) (*allowlist.File, []byte, error) {
	var src bytes.Buffer
	file, err := parse(path, &src)
	faults, ok := errors.AsType[allowlist.FileErrors](err)
	if !ok {
		return file, src.Bytes(), err
	}
	for _, fault := range faults {
		fmt.Fprintln(a.stderr, terminal.Safe(fault.Error()))
	}
	return nil, nil, &exitError{code: exitFailed}
}

// parse reads the allowlist at path, and puts its text into src.
func parse(path string, src io.Writer) (*allowlist.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return allowlist.Load(path) // which says why it cannot
	}
	defer f.Close()
	return allowlist.Parse(io.TeeReader(f, src), path)
}

// missingProxies are the proxies that entries of an allowlist name, where none are
// set here; where some are set, it is an error if one is missing among them.
func (a *app) missingProxies(path string, policies *firewall.Policies) ([]string, error) {
	route, err := a.route()
	if err != nil {
		return nil, err
	}
	missing := slices.DeleteFunc(policies.Vias(), func(via string) bool { return route.proxies[via].IsValid() })
	if len(missing) == 0 || len(route.proxies) == 0 {
		return missing, nil
	}
	fmt.Fprintf(a.stderr, "%s: via: %s has no proxy of the name %s, so the gate would refuse the file\n", terminal.Safe(path), proxiesVariable, strings.Join(missing, ", "))
	return nil, &exitError{code: exitFailed}
}

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
