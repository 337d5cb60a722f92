// Command cell is the keeper of a cell: the first process of the container that
// owns the cell's network namespace. It seals the namespace so that only the gate
// can be reached from it, gives up all privileges, prints "ready" and sleeps
// until it is told to end.
//
//	cell -gate 172.30.7.2
//
// It starts as root with the capabilities NET_ADMIN, SETUID, SETGID and SETPCAP,
// which are gone before it says that it is ready. Any failure is a message on
// standard error and exit status 1: the cell must not be used then.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"sallyport/cell"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "cell:", err)
		os.Exit(1)
	}
}

// hold is the argument of the second half, which runs without privileges.
const hold = "hold"

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 1 && args[0] == hold {
		return cell.Hold(ctx, stdout)
	}
	flags := flag.NewFlagSet("cell", flag.ContinueOnError)
	flags.SetOutput(stderr)
	gate := flags.String("gate", "", "the gate's IPv4 `address` in this cell")
	uid := flags.Int("uid", 65532, "user and group `id` to become")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	addr, err := netip.ParseAddr(*gate)
	if err != nil {
		return fmt.Errorf("the gate's address: %w", err)
	}
	if err := cell.Seal(addr); err != nil {
		return fmt.Errorf("seal the network namespace: %w", err)
	}
	return cell.Drop(*uid, *uid, []string{"/proc/self/exe", hold}, []string{"GOMAXPROCS=1", "GOMEMLIMIT=8MiB"})
}
