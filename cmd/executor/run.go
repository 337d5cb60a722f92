package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"sallyport/executor/client"
	"sallyport/internal/version"
)

// healthTimeout is well within what compose grants a health check.
const healthTimeout = 10 * time.Second

func run(ctx context.Context, args, environ []string, stdout io.Writer) error {
	if len(args) == 1 && args[0] == "version" {
		_, err := fmt.Fprintln(stdout, version.String())
		return err
	}
	s, err := parseSettings(environ)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		return serve(ctx, s, slog.New(slog.NewJSONHandler(stdout, nil)))
	case len(args) == 1 && args[0] == "health":
		return health(ctx, s.Listen, stdout)
	}
	return fmt.Errorf("unknown arguments %q; usage: executor [health | version]", strings.Join(args, " "))
}

// health asks the executor that listens on the address whether a run could start.
func health(ctx context.Context, listen string, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("the address to listen on: %w", err)
	}
	if addr, err := netip.ParseAddr(host); host == "" || err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	c := client.Client{Addr: "http://" + net.JoinHostPort(host, port)}
	ready, err := c.Ready(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, check := range ready.Checks {
		if !check.Ready {
			missing = append(missing, check.Name+": "+check.Detail)
		}
	}
	if !ready.Ready {
		return errors.New("not ready: " + strings.Join(missing, "; "))
	}
	_, err = fmt.Fprintln(stdout, "ready")
	return err
}
