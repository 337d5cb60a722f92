package gate

import (
	"context"
	"fmt"
	"log/slog"

	"sallyport/firewall"
)

const ipForward = "/proc/sys/net/ipv4/ip_forward"

// Run is the daemon: it loads the allowlist, opens the control socket and serves
// until ctx ends. With an allowlist that is missing or not valid it returns an
// error that names file and line, and has opened nothing.
func Run(ctx context.Context, settings Settings, version string, log *slog.Logger) error {
	load := func() (*firewall.Policies, error) { return firewall.Load(settings.Allowlist) }
	policies, err := load()
	if err != nil {
		return fmt.Errorf("the allowlist is refused, so nothing was opened:\n%w", err)
	}
	resolver, err := settings.resolver()
	if err != nil {
		return err
	}
	defer resolver.CloseIdle()
	d := &Daemon{Policies: policies, Load: load, Resolver: resolver, Cache: settings.cache(), Log: log, Version: version}
	if w := forwardWarning(ipForward); w != "" {
		log.Warn(w)
		d.Warnings = append(d.Warnings, w)
	}
	ln, err := listenControl(ctx, settings.ControlSocket)
	if err != nil {
		return err
	}
	return d.Serve(ctx, ln)
}
