// Command entrypoint is PID 1 of a sandbox. Without arguments it speaks the wire
// protocol of package entrypoint over its standard input and output.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"sallyport/entrypoint"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "entrypoint:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	switch {
	case len(args) == 0:
		return entrypoint.Main(ctx, stdin, stdout)
	}
	return fmt.Errorf("unknown command %q", args[0])
}
