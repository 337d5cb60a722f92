package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/firewall"
	"sallyport/firewall/allowlist/patch"
	"sallyport/firewall/review"
	"sallyport/internal/fileowner"
)

type learnOptions struct {
	file, policy string
	write        bool
}

func (a *app) learnCommand() *cobra.Command {
	var o learnOptions
	cmd := &cobra.Command{
		Use:   "learn RUN...",
		Short: "Turn the refused hosts of runs into a patch of the allowlist",
		Long: `Learn reads the receipts of runs and prints the smallest change of the allowlist that
would have let them reach the hosts that were refused, as a unified diff. It names
exact hosts, puts them beside their siblings, and keeps all comments. What speaks
against a host is said on standard error: read it before you apply the change. An
agent that was led astray asks for its master's hosts, too.

RUN is the identifier of a run, or a .json file with its result, as
"sallyport run --json" prints it. Nothing is written without --write.`,
		Example: "  sallyport learn 01jd2q --policy strict >allow.patch\n  sallyport learn result.json --write",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("RUN is missing")
			}
			return atMost(len(args))(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.learn(cmd.Context(), args, o)
		},
	}
	cmd.Flags().StringVarP(&o.file, "file", "f", "", "the allowlist")
	cmd.Flags().StringVarP(&o.policy, "policy", "p", "", "name of the policy that shall allow them; that of the first run by default")
	cmd.Flags().BoolVar(&o.write, "write", false, "change the file")
	return cmd
}

func (a *app) learn(ctx context.Context, runs []string, o learnOptions) error {
	var wanted []review.Wanted
	var notes []string
	var of []string // the policies of the runs
	for _, run := range runs {
		result, err := a.result(ctx, run)
		if err != nil {
			return err
		}
		of = append(of, result.Receipt.Policy)
		if o.policy != "" && result.Receipt.Policy != o.policy {
			fmt.Fprintf(a.stderr, "# run %s was under the policy %s: what it wanted goes into %s\n", terminal.Safe(run), terminal.Safe(result.Receipt.Policy), terminal.Safe(o.policy))
		}
		if n := result.Receipt.Overflow; n > 0 {
			fmt.Fprintf(a.stderr, "# run %s: %d decisions found no room in its receipt, hosts may be missing here\n", terminal.Safe(run), n)
		}
		wanted = review.MergeWanted(wanted, review.WantedOf(result.Receipt))
		for _, u := range review.UnwantedOf(result.Receipt) {
			notes = append(notes, terminal.OneLine(u.Host, 80)+": "+u.Why)
		}
	}
	slices.Sort(of)
	if of = slices.Compact(of); o.policy == "" && len(of) > 1 {
		return usage("the runs were under different policies, %s: name with --policy the one that shall allow what they wanted", strings.Join(of, ", "))
	}
	if o.policy == "" {
		o.policy = of[0]
	}
	path := a.allowlist(o.file)
	policies, src, err := a.read(path)
	if err != nil {
		return err
	}
	var hosts []patch.Host
	for _, w := range wanted {
		hosts = append(hosts, patch.Host{Name: w.Name, Ports: w.Ports})
	}
	p, err := patch.Allow(src, path, o.policy, hosts)
	if err != nil {
		return usage("%w", err)
	}
	policy, _ := policies.Policy(o.policy)
	a.printLearned(p, policy)
	slices.Sort(notes)
	for _, note := range slices.Compact(notes) {
		fmt.Fprintf(a.stderr, "# leave %s\n", terminal.Safe(note))
	}
	if len(p.Added) == 0 {
		return nil
	}
	name, dir := patchName(path)
	if dir != "" {
		fmt.Fprintf(a.stderr, "# apply it in %s\n", terminal.Safe(dir))
	}
	if _, err := fmt.Fprint(a.stdout, unified(name, src, p.Text)); err != nil {
		return fmt.Errorf("print the patch: %w", err)
	}
	if !o.write {
		return nil
	}
	if err := replaceFile(path, src, p.Text); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "# %s is written\n", terminal.Safe(path))
	return nil
}

// printLearned says on standard error, beside the patch, what it does and what
// speaks against it.
func (a *app) printLearned(p *patch.Patch, policy *firewall.Policy) {
	say := func(format string, args ...any) {
		fmt.Fprint(a.stderr, "# "+terminal.Safe(fmt.Sprintf(format, args...))+"\n")
	}
	for _, added := range p.Added {
		say("allow %s in %s", added.Entry, added.Place)
		for _, risk := range review.RisksUnder(policy, added.Host.Name, added.Host.Ports) {
			say("  RISK: %s", risk)
		}
	}
	for _, left := range p.Left {
		say("leave %s: it %s", left.Host.Name, left.Why)
	}
	for _, c := range p.Changes {
		for _, r := range c.Opens {
			if c.Policy != policy.Name() {
				say("policy %s extends %s and opens %s, too", c.Policy, policy.Name(), r)
			}
		}
	}
	if len(p.Added) == 0 {
		say("there is nothing to add to policy %s", policy.Name())
	}
}

// patchName is the path of a file as a patch names it: relative to the working
// directory where the file is below it, else its last part, to be applied in dir.
func patchName(path string) (name, dir string) {
	full, err := filepath.Abs(path)
	if err != nil {
		return filepath.Base(path), filepath.Dir(path)
	}
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, full); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel), ""
		}
	}
	return filepath.Base(full), filepath.Dir(full)
}

// unified is the difference as patch and git apply it. A tab ends a name with a
// blank in it.
func unified(name string, old, new []byte) string {
	text := string(diff.Diff("a", old, "b", new))
	for range 3 { // what this library alone writes, and the names
		_, text, _ = strings.Cut(text, "\n")
	}
	if strings.Contains(name, " ") {
		name += "\t"
	}
	return "--- a/" + name + "\n+++ b/" + name + "\n" + text
}

// replaceFile puts text into the file at path at once; a link stays, and so do
// owner and mode. It is an error if the file is no longer what was read.
func replaceFile(path string, was, text []byte) (err error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("find the file to write: %w", err)
	}
	info, err := os.Stat(target)
	if err != nil {
		return fmt.Errorf("find the file to write: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".allowlist-*")
	if err != nil {
		return fmt.Errorf("write beside %s: %w", target, err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := fileowner.Of(info).Give(f.Chown); err != nil {
		return errors.Join(fmt.Errorf("keep the owner of %s: %w", target, err), f.Close())
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write beside %s: %w", target, err)
	}
	if now, err := os.ReadFile(target); err != nil || !bytes.Equal(now, was) {
		return fmt.Errorf("%s has changed meanwhile: nothing is written", path)
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return fmt.Errorf("put the new allowlist in its place: %w", err)
	}
	return nil
}
