// Command entrypoint is PID 1 of a sandbox. Without arguments it speaks the wire
// protocol of package wire over its standard input and output. Two
// sub-commands serve the proof of the sandbox's boundary (package probe):
//
//	entrypoint probe    tries what a JSON request on standard input lists
//	entrypoint canary   listens, and tells what reached it
//
// In a sandbox whose run may use GitHub (package github) it is also
//
//	entrypoint checkout        fills the workspace, as JSON on standard input says
//	git-credential-sallyport   git's credential helper
//	gh                         gh with the token that is valid now
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"sallyport/entrypoint/github"
	"sallyport/entrypoint/pid1"
	"sallyport/entrypoint/probe"
)

func main() {
	err := run(context.Background(), os.Args, os.Environ(), os.Stdin, os.Stdout)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "entrypoint:", err)
	if errors.Is(err, github.ErrNotEmpty) {
		os.Exit(github.ExitNotEmpty)
	}
	os.Exit(1)
}

// run does what the command line asks for; its first word may be a shim's name.
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout io.Writer) error {
	switch filepath.Base(args[0]) {
	case github.CredentialShim:
		return github.Credential(args[1:], stdin, stdout)
	case github.GhShim:
		return github.Gh(args, environ)
	}
	if len(args) == 1 {
		return pid1.Main(ctx, stdin, stdout)
	}
	if len(args) > 2 {
		return fmt.Errorf("unexpected argument %q", args[2])
	}
	switch args[1] {
	case "probe":
		return probe.Run(ctx, stdin, stdout)
	case "canary":
		return probe.Canary(ctx, stdin, stdout)
	case "checkout": // which leaves an empty workspace behind when it is told to end
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		return github.Checkout(ctx, stdin, stdout)
	case probe.Nothing:
		return nil
	}
	return fmt.Errorf("unknown command %q", args[1])
}
