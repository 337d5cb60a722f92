package gate

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
)

// metricsRoutes serves the metrics, to nobody whose address is of a cell.
func (s *server) metricsRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.Metrics.Handler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || s.inCell(from.Addr().Unmap()) {
			http.Error(w, "not for cells", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// inCell reports whether an address lies in a leased cell.
func (s *server) inCell(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leases {
		if l.Prefix.Contains(a) {
			return true
		}
	}
	return false
}

// servesMetricsIn returns the address of the metrics if it lies in prefix: a
// cell there would reach them.
func (d *Daemon) servesMetricsIn(prefix netip.Prefix) (net.Addr, bool) {
	if d.MetricsOn == nil {
		return nil, false
	}
	addr := d.MetricsOn.Addr()
	t, ok := addr.(*net.TCPAddr)
	return addr, !ok || prefix.Contains(t.AddrPort().Addr().Unmap())
}

// serveMetrics serves MetricsOn, if there is one, until end is called.
func (s *server) serveMetrics() (end func()) {
	if s.MetricsOn == nil {
		return func() {}
	}
	web := &http.Server{
		Handler: s.metricsRoutes(), ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: callTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := web.Serve(s.MetricsOn); !errors.Is(err, http.ErrServerClosed) {
			s.Log.Error("the metrics are no longer served", "error", err)
		}
	}()
	return func() {
		web.Close()
		<-ended
	}
}
