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

	"sallyport/firewall"
	"sallyport/firewall/patch"
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
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("RUN is missing")
			}
			return nil
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
	var wanted []want
	var notes []string
	for _, run := range runs {
		result, err := a.result(ctx, run)
		if err != nil {
			return err
		}
		if o.policy == "" {
			o.policy = result.Receipt.Policy
		}
		wanted = merge(wanted, wants(result.Receipt))
		notes = append(notes, beyond(result.Receipt)...)
	}
	path := a.allowlist(o.file)
	policies, err := a.load(path)
	if err != nil {
		return err
	}
	src, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the allowlist: %w", err)
	}
	var hosts []patch.Host
	for _, w := range wanted {
		hosts = append(hosts, w.Host)
	}
	p, err := patch.Allow(src, path, o.policy, hosts)
	if err != nil {
		return usage("%w", err)
	}
	policy, _ := policies.Policy(o.policy)
	a.printLearned(p, policy)
	slices.Sort(notes)
	for _, note := range slices.Compact(notes) {
		fmt.Fprintf(a.stderr, "# leave %s\n", safe(note))
	}
	if len(p.Added) == 0 {
		return nil
	}
	if _, err := fmt.Fprint(a.stdout, unified(path, src, p.Text)); err != nil {
		return fmt.Errorf("print the patch: %w", err)
	}
	if !o.write {
		return nil
	}
	if err := replaceFile(path, src, p.Text); err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "# %s is written\n", safe(path))
	return nil
}

// printLearned says on standard error, beside the patch, what it does and what
// speaks against it.
func (a *app) printLearned(p *patch.Patch, policy *firewall.Policy) {
	say := func(format string, args ...any) { fmt.Fprint(a.stderr, "# "+safe(fmt.Sprintf(format, args...))+"\n") }
	for _, added := range p.Added {
		say("allow %s in %s", added.Entry, added.Place)
		for _, risk := range risks(added.Host, policy) {
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

// risks is what speaks against allowing h. policy is the one that refuses it.
func risks(h patch.Host, policy *firewall.Policy) []string {
	found := patch.Risks(h.Name)
	switch d := policy.Decide(h.Name, firewall.DefaultPort); d.Reason {
	case firewall.ReasonDoH:
		found = append(found, d.Detail+": whoever reaches it can carry data out in queries")
	case firewall.ReasonRemoved:
		found = append(found, fmt.Sprintf("the policy removes it on purpose, on line %d", d.Line))
	}
	if slices.Contains(h.Ports, 80) {
		found = append(found, "what goes over port 80 can be read and changed on the way")
	}
	return found
}

// unified is the difference as patch and git apply it.
func unified(path string, old, new []byte) string {
	name := filepath.ToSlash(strings.TrimPrefix(path, string(filepath.Separator)))
	text := string(diff.Diff("a/"+name, old, "b/"+name, new))
	_, text, _ = strings.Cut(text, "\n") // a line that only this library writes
	return text
}

// replaceFile puts text into the file at path at once; a link stays, and so does
// the mode. It is an error if the file is no longer what was read.
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
