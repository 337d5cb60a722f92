// Command sallyport is the command line of operators and callers: it runs an
// agent, checks and explains an allowlist, and examines a running stack.
//
// Its exit codes are in root.go.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
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
