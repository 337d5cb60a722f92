// Command entrypoint is PID 1 of a sandbox. Without arguments it speaks the wire
// protocol of package entrypoint over its standard input and output. Two
// sub-commands serve the proof of the sandbox's boundary (package probe):
//
//	entrypoint probe    tries what a JSON request on standard input lists
//	entrypoint canary   listens, and tells what reached it
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"sallyport/entrypoint"
	"sallyport/entrypoint/probe"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "entrypoint:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) == 0 {
		return entrypoint.Main(ctx, stdin, stdout)
	}
	if len(args) > 1 {
		return fmt.Errorf("unexpected argument %q", args[1])
	}
	switch args[0] {
	case "probe":
		return probe.Run(ctx, stdin, stdout)
	case "canary":
		return probe.Canary(ctx, stdin, stdout)
	case probe.Nothing:
		return nil
	}
	return fmt.Errorf("unknown command %q", args[0])
}
