package gate

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"sallyport/gate/decisionlog"
	"sallyport/gate/listener"
	"sallyport/gate/metrics"
	"sallyport/gate/settings"
	"sallyport/sniproxy/admission"
)

const ipForward = "/proc/sys/net/ipv4/ip_forward"

// Run is the daemon: it loads the allowlist, opens the control socket and serves
// until ctx ends, reading the allowlist anew when the file changes and on SIGHUP.
// With an allowlist that is missing or not valid at the start it returns an
// error that names file and line, and has opened nothing.
func Run(ctx context.Context, set settings.Settings, version string, log *slog.Logger, decisions io.Writer) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	file, err := newFiles(set)
	if err != nil {
		return err
	}
	rules, err := file.load()
	if err != nil {
		return fmt.Errorf("the allowlist, or a file that goes with it, is refused, so nothing was opened:\n%w", err)
	}
	resolver := file.resolver
	defer resolver.CloseIdle()
	d := &Daemon{Allowlist: rules, Load: file.load, Resolver: resolver, Proxy: file.proxy, Cache: CacheSize{Names: set.CacheNames, Least: set.CacheMin, Most: set.CacheMax}, Parked: admission.NewParked(int64(set.StalledBytes)), Metrics: metrics.New(), Log: log, Decisions: decisions, Version: version}
	resolver.Observe = d.Metrics.Asked
	d.Watch = func(ctx context.Context, reload func()) { file.Watch(ctx, hangup, reload, log) }
	if w := forwardWarning(ipForward); w != "" {
		log.Warn(w)
		d.Warnings = append(d.Warnings, w)
	}
	if set.DecisionLog != "" {
		if d.File, err = decisionlog.OpenFile(set.DecisionLog, decisionlog.FileSize{Bytes: int64(set.DecisionLogSize), Files: set.DecisionLogFiles}, log); err != nil {
			return err
		}
		defer func() {
			if err := d.File.Close(); err != nil {
				log.Error("closing the file of decisions", "error", err)
			}
		}()
	}
	if addr := netip.AddrPort(set.MetricsListen); addr.IsValid() {
		if d.MetricsOn, err = listener.Metrics(ctx, addr); err != nil {
			return err
		}
		defer d.MetricsOn.Close()
	}
	ln, err := listener.Control(ctx, set.ControlSocket)
	if err != nil {
		return err
	}
	return d.Serve(ctx, ln)
}

// forwardWarning says so if this machine forwards packets: cells are separate
// only as long as nothing routes between them.
func forwardWarning(procfs string) string {
	v, err := os.ReadFile(procfs)
	switch {
	case err != nil:
		return "cannot tell whether this machine forwards packets: " + err.Error()
	case strings.TrimSpace(string(v)) != "0":
		return "this machine forwards packets (net.ipv4.ip_forward is on): the gate must not route between cells; " +
			"set the sysctl to 0 in its container"
	}
	return ""
}
