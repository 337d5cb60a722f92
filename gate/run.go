package gate

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"sallyport/gate/decisionlog"
	"syscall"
)

const ipForward = "/proc/sys/net/ipv4/ip_forward"

// Run is the daemon: it loads the allowlist, opens the control socket and serves
// until ctx ends, reading the allowlist anew when the file changes and on SIGHUP.
// With an allowlist that is missing or not valid at the start it returns an
// error that names file and line, and has opened nothing.
func Run(ctx context.Context, settings Settings, version string, log *slog.Logger, decisions io.Writer) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	file, err := newFiles(settings)
	if err != nil {
		return err
	}
	rules, err := file.load()
	if err != nil {
		return fmt.Errorf("the allowlist, or a file that goes with it, is refused, so nothing was opened:\n%w", err)
	}
	resolver := file.resolver
	defer resolver.CloseIdle()
	d := &Daemon{Allowlist: rules, Load: file.load, Resolver: resolver, Proxy: file.proxy, Cache: settings.cache(), Parked: settings.parked(), Metrics: NewMetrics(), Log: log, Decisions: decisions, Version: version}
	resolver.Observe = d.Metrics.asked
	d.Watch = func(ctx context.Context, reload func()) { file.watch(ctx, hangup, reload, log) }
	if w := forwardWarning(ipForward); w != "" {
		log.Warn(w)
		d.Warnings = append(d.Warnings, w)
	}
	if settings.DecisionLog != "" {
		if d.File, err = decisionlog.OpenFile(settings.DecisionLog, settings.fileSize(), log); err != nil {
			return err
		}
		defer func() {
			if err := d.File.Close(); err != nil {
				log.Error("closing the file of decisions", "error", err)
			}
		}()
	}
	if addr := netip.AddrPort(settings.MetricsListen); addr.IsValid() {
		if d.MetricsOn, err = listenMetrics(ctx, addr); err != nil {
			return err
		}
		defer d.MetricsOn.Close()
	}
	ln, err := listenControl(ctx, settings.ControlSocket)
	if err != nil {
		return err
	}
	return d.Serve(ctx, ln)
}
