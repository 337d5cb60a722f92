package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"sallyport/gate"
	"sallyport/gate/control"
	"sallyport/gate/decisionlog"
	"sallyport/gate/settings"
	"sallyport/internal/version"
)

// healthTimeout is well within what compose grants a health check.
const healthTimeout = 10 * time.Second

// reloadTimeout is for a gate that is under load.
const reloadTimeout = 10 * time.Second

func run(ctx context.Context, args, environ []string, stdout io.Writer) error {
	if len(args) == 1 && args[0] == "version" {
		_, err := fmt.Fprintln(stdout, version.String())
		return err
	}
	set, err := settings.Parse(environ)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		out := decisionlog.OnPipe(stdout)
		return gate.Run(ctx, set, version.String(), slog.New(slog.NewJSONHandler(out, nil)), out)
	case len(args) == 1 && args[0] == "health":
		return health(ctx, set.ControlSocket, stdout)
	case len(args) == 1 && args[0] == "reload":
		return reload(ctx, set.ControlSocket, stdout)
	}
	return fmt.Errorf("unknown arguments %q; usage: gate [health | reload | version]", strings.Join(args, " "))
}

// health prints one line about the running gate. It is an error if the gate denies
// everything.
func health(ctx context.Context, socket string, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	client := control.Client{Socket: socket}
	h, err := client.Health(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %d cells, policies %s, %s\n", h.Status, h.Cells, strings.Join(h.Policies, ", "), h.Digest)
	if h.Status == control.StatusDenying {
		return fmt.Errorf("it denies everything: %s", strings.Join(h.Warnings, "; "))
	}
	if h.Allowlist.State == control.AllowlistStale {
		_, err = fmt.Fprintf(stdout, "the allowlist is stale since %s: %s\n", h.Allowlist.Since.Format(time.RFC3339), h.Allowlist.Error)
	}
	return err
}

// reload puts the allowlist as it is now into force.
func reload(ctx context.Context, socket string, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	client := control.Client{Socket: socket}
	h, err := client.Reload(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "in force: generation %d, policies %s, %s\n", h.Generation, strings.Join(h.Policies, ", "), h.Digest)
	return err
}
