package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/formats"
	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/audit"
	"sallyport/executor/statedir"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Export the signed records of runs, and look after their key",
		Long: `The executor signs a record of each run and keeps it in a log that can only grow. These
commands read its files in the executor's state directory, which takes the rights of
the user whose executor it is; "sallyport verify" needs none of that.`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.auditExportCommand(), a.auditKeyCommand(), a.auditRotateCommand())
	return cmd
}

func (a *app) auditExportCommand() *cobra.Command {
	var output, format string
	cmd := &cobra.Command{
		Use:   "export [RUN...]",
		Short: "Write the log, or the records of some runs, to a file for others",
		Long: `export writes the whole log, or the records of the runs that are named and of the keys,
to standard output or to a new file. Whoever has a public key of the log can verify it. The
formats ocsf and otel are for programs that collect events: their lines are not signed.`,
		Example: "  sallyport audit export -o audit.ndjson\n  sallyport audit export 01m7xs3ty1hj73cr72jnejwmy0 -o run.ndjson\n  sallyport audit export --format ocsf -o events.ndjson",
		RunE: func(_ *cobra.Command, args []string) error {
			return a.auditExport(output, format, args)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `file` to write, which must not be there yet")
	cmd.Flags().StringVar(&format, "format", formats.Own, "the `format`: "+strings.Join(formats.Names, ", "))
	return cmd
}

func (a *app) auditExport(output, format string, runs []string) (err error) {
	if !slices.Contains(formats.Names, format) {
		return fmt.Errorf("--format is %q: write one of %s", format, strings.Join(formats.Names, ", "))
	}
	w := a.stdout
	if output != "" {
		f, err := os.OpenFile(output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		defer func() {
			if err = errors.Join(err, f.Close()); err != nil {
				os.Remove(output)
			}
		}()
		w = f
	}
	var want func(audit.Record) bool
	found := map[string]bool{}
	if len(runs) > 0 {
		want = func(r audit.Record) bool {
			if !slices.Contains(runs, r.Execution) {
				return false
			}
			found[r.Execution] = true
			return true
		}
	}
	if err := formats.Export(w, format, statedir.Audit(a.stateDir()), want); err != nil {
		return noLog(err)
	}
	for _, run := range runs {
		if !found[run] {
			return fmt.Errorf("the log has no record of a run %q", run)
		}
	}
	return nil
}

// noLog says what to do where there is no log, or none that this user may read.
func noLog(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: run as the user whose executor it is, or as root", err)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%w: the executor makes it when it starts; set SALLYPORT_STATE to its state directory", err)
	}
	return &exitError{code: exitUsage, err: err}
}

func (a *app) auditKeyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key that the records are signed with now",
		Args:  atMost(0),
		RunE: func(*cobra.Command, []string) error {
			key, err := audit.CurrentKey(statedir.Audit(a.stateDir()))
			if err != nil {
				return noLog(err)
			}
			fmt.Fprint(a.stdout, key.PEM())
			return nil
		},
	}
}

func (a *app) auditRotateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rotate",
		Short: "Sign with a new key from now on, and print its public half",
		Long: `rotate makes a new key and removes the private half of the old one. Both sign the change,
so a public key of before verifies the log as well as the new one. The executor need not be
restarted.`,
		Args: atMost(0),
		RunE: func(*cobra.Command, []string) error {
			dir := statedir.Audit(a.stateDir())
			if _, err := os.Stat(dir); err != nil { // Open would begin a log
				return noLog(err)
			}
			log, err := audit.Open(dir)
			if err != nil {
				return noLog(err)
			}
			defer log.Close()
			key, err := log.Rotate()
			if err != nil {
				return err
			}
			fmt.Fprint(a.stdout, key.PEM())
			return nil
		},
	}
}

// A verify is one call of the command.
type verify struct {
	*app
	keys    []string
	since   string
	results []string
	asJSON  bool
}

func (a *app) verifyCommand() *cobra.Command {
	v := &verify{app: a}
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Verify an export of the audit log with a public key",
		Long: `verify checks, without any executor, an export of "sallyport audit export": that each record
is signed, stands where it stood in the log, and is what was written, to the byte. It exits 0
where all of that holds, 1 where anything does not, 2 where a file cannot be read.

An export of the whole log that was cut back to an earlier state of it verifies, too; --since
and --result show that.`,
		Example: "  sallyport audit key >key.pem\n  sallyport verify --key key.pem audit.ndjson\n  sallyport verify --key key.pem --since last-month.ndjson --result result.json audit.ndjson",
		Args:    exactly("FILE, an export,"),
		RunE:    func(_ *cobra.Command, args []string) error { return v.run(args[0]) },
	}
	cmd.Flags().StringArrayVar(&v.keys, "key", nil, "`file` with a public key of the log's; may be given several times")
	cmd.Flags().StringVar(&v.since, "since", "", "an earlier export of the same log, a `file`, which this one must go on from")
	cmd.Flags().StringArrayVar(&v.results, "result", nil, "`file` with the result of a run, whose record must be there; may be given several times")
	cmd.Flags().BoolVar(&v.asJSON, "json", false, "print the statements as they were signed, one on a line")
	return cmd
}

func (v *verify) run(path string) error {
	trust, err := v.trust()
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	f, err := os.Open(path)
	if err != nil {
		return &exitError{code: exitUsage, err: err}
	}
	defer f.Close()
	var entries []audit.Entry
	report, err := audit.Verify(f, trust, func(e audit.Entry) error {
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s %w", path, err)
	}
	return v.print(report, entries)
}

// trust reads what the flags name.
func (v *verify) trust() (t audit.Trust, err error) {
	if len(v.keys) == 0 {
		return t, usage("--key is missing: a file with the public key, which \"sallyport audit key\" prints")
	}
	for _, path := range v.keys {
		text, err := os.ReadFile(path)
		if err != nil {
			return t, err
		}
		keys, err := audit.ParsePublicKeys(text)
		if err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
		t.Keys = append(t.Keys, keys...)
	}
	if v.since != "" {
		if t.Since, err = os.ReadFile(v.since); err != nil {
			return t, err
		}
	}
	for _, path := range v.results {
		var result struct{ Audit *audit.Place }
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &result)
		}
		if err == nil && result.Audit == nil {
			err = errors.New("it is no result that says where its record is")
		}
		if err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
		t.Places = append(t.Places, *result.Audit)
	}
	return t, nil
}

// print tells of an export that has been verified.
func (v *verify) print(report audit.Report, entries []audit.Entry) error {
	if v.asJSON {
		for _, e := range entries {
			if _, err := v.stdout.Write(append(terminal.SafeJSON(e.Text), '\n')); err != nil {
				return err
			}
		}
		return nil
	}
	of := "all records"
	if report.Records != report.Size {
		of = fmt.Sprintf("%d of %d records", report.Records, report.Size)
	}
	fmt.Fprintf(v.stdout, "Verified: %s of the log %s, signed with %s.\n", of, terminal.Safe(report.Log), report.Keys[len(report.Keys)-1])
	t := tabwriter.NewWriter(v.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "INDEX\tACCEPTED\tRUN\tTASK\tPOLICY\tOUTCOME")
	for _, e := range entries {
		if e.PredicateType == audit.TypeKey {
			fmt.Fprintf(t, "%d\t\t\t\t\tkey %s\n", e.Index, e.Subject[0].Name)
			continue
		}
		if e.PredicateType == audit.TypeApproval {
			d, err := e.Decision()
			if err != nil {
				return fmt.Errorf("record %d: %w", e.Index, err)
			}
			fmt.Fprintf(t, "%d\t%s\t\t\t\t%s by %s: %s %s %s\n", e.Index, d.Time.UTC().Format(time.RFC3339), terminal.Cell(d.State), terminal.Cell(d.Principal), terminal.Cell(d.Kind), terminal.Cell(d.Name), terminal.Cell(d.Digest))
			continue
		}
		r, err := e.Run()
		if err != nil {
			return fmt.Errorf("record %d: %w", e.Index, err)
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", e.Index, r.Outcome.Accepted.UTC().Format(time.RFC3339), terminal.Cell(r.Execution), terminal.Cell(r.Task.ID), terminal.Cell(r.Network.Policy), terminal.Cell(outcomeText(r.Outcome)))
	}
	return t.Flush()
}

func outcomeText(o audit.Outcome) string {
	switch {
	case o.State == audit.StateLost:
		return "lost: its executor died"
	case o.Success:
		return "success"
	}
	return o.Code
}
