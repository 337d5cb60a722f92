// Command gate is the daemon between cells and the world.
//
//	gate           serves until it is told to end (SIGTERM); reads its allowlist again on SIGHUP
//	gate health    asks the running gate how it is; exits 1 if it does not answer
//	gate reload    has the running gate read its allowlist again; exits 1 if it is refused
//	gate version   prints the version
//
// Its settings are variables of the environment; see gate.Settings.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}
