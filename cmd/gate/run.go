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
	"sallyport/internal/version"
)

// healthTimeout is well within what compose grants a health check.
const healthTimeout = 2 * time.Second

func run(ctx context.Context, args, environ []string, stdout io.Writer) error {
	if len(args) == 1 && args[0] == "version" {
		_, err := fmt.Fprintln(stdout, version.String())
		return err
	}
	settings, err := gate.ParseSettings(environ)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		return gate.Run(ctx, settings, version.String(), slog.New(slog.NewJSONHandler(stdout, nil)))
	case len(args) == 1 && args[0] == "health":
		return health(ctx, settings.ControlSocket, stdout)
	}
	return fmt.Errorf("unknown arguments %q; usage: gate [health | version]", strings.Join(args, " "))
}

// health prints one line about the running gate.
func health(ctx context.Context, socket string, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	client := control.Client{Socket: socket}
	h, err := client.Health(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: %d cells, policies %s, %s\n", h.Status, h.Cells, strings.Join(h.Policies, ", "), h.Digest)
	return err
}
