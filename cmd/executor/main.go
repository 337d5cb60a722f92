// Command executor is the server that runs agents in sandboxes behind the gate.
//
//	executor           serves until it is told to end (SIGTERM)
//	executor health    asks the running executor whether it is ready; exits 1 if not
//	executor version   prints the version
//
// Its settings are variables of the environment; see settings.
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
		fmt.Fprintln(os.Stderr, "executor:", err)
		os.Exit(1)
	}
}
