// Command sallyport is the command line of operators and callers: it runs an
// agent, checks and explains an allowlist, and examines a running stack.
//
// Each command has a file of its name; runs.go has logs, and how a run is cancelled. What is
// printed of a run is in package show.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/approvals"
	"sallyport/cmd/sallyport/backup"
	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/executor/client"
	"sallyport/internal/version"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // as long as the process lives
		<-signals
		cancel() // ends what is under way in order
		<-signals
		os.Exit(exitCancelled)
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
	exitCancelled   = 130

	// Where a command of the user's own runs, which may end with any of the above, the
	// codes are those of timeout(1), docker run and env(1).
	exitTimeout    = 124
	exitOurs       = 125 // all that is not the command's end
	exitNotStarted = 126
)

// An app is what the commands share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	addr           string // of the executor, where --addr names it
	tenant         string // whose things, where --tenant names it
}

// An exitError ends the program with a code of its own. What there is to say has
// been said where err is nil.
type exitError struct {
	code  int
	err   error
	hint  bool // at the help
	final bool // the code is that of a command's end
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...), hint: true}
}

// run is the program without its process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{Writer: stdout}
	a := &app{stdin: stdin, stdout: out, stderr: stderr, getenv: os.Getenv}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if code := exitCode(err); out.err != nil && (code == exitOK || code == exitRefused) {
		err = fmt.Errorf("the output is lost: %w", out.err)
	}
	code := exitCode(err)
	if cmd.Name() == "run" && slices.Contains(args, "--") {
		code = besideCommand(code, err)
	}
	if exit, ok := errors.AsType[*exitError](err); err != nil && (!ok || exit.err != nil) {
		fmt.Fprintln(stderr, "sallyport:", terminal.Safe(err.Error()))
		if ok && exit.hint {
			fmt.Fprintf(stderr, "Try %q.\n", cmd.CommandPath()+" --help")
		}
	}
	return code
}

// An output is where the program prints. It remembers the first error, so that whoever
// prints need not check each time.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	if _, ok := errors.AsType[*api.Problem](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*client.UnreachableError](err); ok {
		return exitUnreachable
	}
	if errors.Is(err, context.Canceled) {
		return exitCancelled
	}
	return exitFailed
}

// besideCommand makes our codes of a call of run leave room for its command's.
func besideCommand(code int, err error) int {
	exit, ok := errors.AsType[*exitError](err)
	if ok && exit.final || code == exitOK || code == exitCancelled {
		return code
	}
	return exitOurs
}

const rootLong = `sallyport runs AI agents in sealed sandboxes whose only way out is a gate.

Exit codes: 0 all well; 1 the run failed, the allowlist has faults, two files or
receipts differ, an artifact cannot be had, or the doctor found something; 2 the
usage is wrong or the executor refused the request; 3 the executor cannot be reached;
4 explain's host, or an address, or policy's request, is refused; 130 cancelled. "run -- COMMAND" ends with
the command's own.

Environment:
  SALLYPORT_ADDR        the executor, as http://HOST:PORT or unix:///PATH; by default its
                        socket in the state directory, where no other user can listen
  SALLYPORT_TOKEN       its bearer token, or
  SALLYPORT_TOKEN_FILE  the file that holds it, or
  SALLYPORT_STATE       the executor's state directory, where socket and token are;
                        by default that of SALLYPORT_STACK, /var/lib/sallyport, and
                        for users other than root ~/.local/state/sallyport
  SALLYPORT_ALLOWLIST   the allowlist that check, explain and learn read,
                        ./allowlist.yaml by default`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "sallyport",
		Short:         "Run AI agents in sealed sandboxes behind a gate",
		Long:          rootLong,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          atMost(0),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&a.addr, "addr", "", "address of the executor, such as http://127.0.0.1:7280 or unix:///PATH")
	root.PersistentFlags().StringVar(&a.tenant, "tenant", "", "whose runs, artifacts and tokens, for who operates the service; \"all\" for every tenant's")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%w", err) })
	root.AddCommand(a.runCommand(), a.checkCommand(), a.explainCommand(), a.policyCommand(), a.diffCommand(), a.learnCommand(), a.receiptCommand(), a.doctorCommand(), a.runsCommand(), a.logsCommand(), a.artifactsCommand(), a.approvalsCommand(), a.auditCommand(), a.verifyCommand(), a.tokenCommand(), a.tokensCommand())
	root.AddCommand(backup.Commands(a.stateDir, a.stdout, exactly("FILE"))...)
	return root
}

func (a *app) approvalsCommand() *cobra.Command {
	c := approvals.Command{Client: a.client, Out: a.stdout, Exactly: exactly}
	return c.Cobra()
}

// atMost takes no more than n arguments, and none that is empty.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > n && n == 0 && cmd.HasSubCommands():
			return usage("there is no command %q", args[0])
		case len(args) > n:
			return usage("%q is one argument too many", args[n])
		case slices.Contains(args, ""):
			return usage("argument %d is empty", slices.Index(args, "")+1)
		}
		return nil
	}
}

// exactly takes the arguments that names name.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usage("%s is missing", names[len(args)])
		}
		return atMost(len(names))(cmd, args)
	}
}
