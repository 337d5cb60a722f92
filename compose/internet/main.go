// Command internet plays the internet for the demo and for the stack's tests: the
// resolver that the gate asks, a model provider, a GitHub, sites on and off the allowlist,
// a git server, package registries, streams, names that lead where nobody may go, and
// listeners on ports that nothing should ever reach. It writes down whatever
// arrives, so that a test can ask the far side what came through.
//
//	internet -lan 198.19.1.10 -wan 11.22.33.10 -dir /run/internet
//
// It has two addresses: one in a private range, which the demo's allowlist
// admits, and one that looks public. The certificate of its own authority, made
// anew at each start, is ca.pem in the directory; the log of what arrived is
// served at http://LAN:7299/hits and written to standard output. The key of GitHub's one App is
// github-app.pem there, made at the first start; what tests ask of GitHub is below http://LAN:7299/github/.
// On any further address it has, only the sites are served, over TLS.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "internet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("internet", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.TextVar(&s.LAN, "lan", netip.Addr{}, "own `address` in a private range")
	flags.TextVar(&s.WAN, "wan", netip.Addr{}, "own `address` that looks public")
	flags.StringVar(&s.Dir, "dir", "/run/internet", "where ca.pem is put")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !s.LAN.Is4() || !s.WAN.Is4() {
		return fmt.Errorf("-lan and -wan must be IPv4 addresses, not %q and %q", s.LAN, s.WAN)
	}
	return serve(ctx, s, newHits(stdout))
}
