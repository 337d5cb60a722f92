package gate

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/firewall/account"
	"sallyport/gate/control"
	"sallyport/gate/listener"
	"sallyport/gate/metrics"
	"sallyport/sniproxy/resolve"
)

// metrics scrapes the control socket.
func (g *testGate) metrics(t *testing.T) string {
	t.Helper()
	status, body, _ := g.request(t, http.MethodGet, "/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	return body
}

func TestMetrics(t *testing.T) {
	g := start(t, upstream(t), func(d *Daemon) {
		d.Cache = CacheSize{Names: 8, Least: time.Minute, Most: time.Minute}
		d.Metrics = metrics.New()
		d.Resolver.(*resolve.Client).Observe = d.Metrics.Asked
	})
	g.lease(t, "cell-1", cellLease(1, "run-1", "strict"))
	for range 2 {
		c, err := g.tunnel(t, 1, "www.site.example")
		if err != nil {
			t.Fatal(err)
		}
		if err := echo(c); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(g.metrics(t), "\nsallyport_connections 1\n") {
			t.Error("the open tunnel is not counted")
		}
		c.Close()
		g.eventually(t, "the tunnel's end", func(control.Health) bool {
			return strings.Contains(g.metrics(t), "\nsallyport_connections 0\n")
		})
	}
	g.wantNXDOMAIN(t, 1, "secret-of-the-sandbox.example.")
	text := g.metrics(t)
	for _, want := range []string{
		`sallyport_decisions_total{kind="tls",policy="strict",reason="listed",verdict="allow"} 2`,
		`sallyport_decisions_total{kind="dns",policy="strict",reason="not_listed",verdict="deny"} 1`,
		`sallyport_decision_seconds_count{kind="tls",verdict="allow"} 2`,
		`sallyport_bytes_total{direction="up",kind="tls",policy="strict"} `,
		`sallyport_bytes_total{direction="down",kind="tls",policy="strict"} `,
		`sallyport_resolver_seconds_count{outcome="answered",transport="udp"} 2`,
		`sallyport_resolver_cache_total{outcome="hit"} 1`,
		`sallyport_resolver_cache_total{outcome="miss"} 1`,
		"sallyport_leases 1\n", "go_goroutines ", "process_open_fds ",
		`sallyport_reloads_total{outcome="refused"} 0`, "sallyport_last_reload_successful 1\n",
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
	// Nothing that a sandbox chose, and nothing that grows with runs.
	for _, never := range []string{"example", "run-1", "cell-1", "127.77"} {
		if strings.Contains(text, never) {
			t.Errorf("the metrics hold %q", never)
		}
	}
	g.release(t, "cell-1")
	if !strings.Contains(g.metrics(t), "\nsallyport_leases 0\n") {
		t.Error("the lease is still counted")
	}
}

func TestMetricsOfReloads(t *testing.T) {
	g, path := reloading(t, false)
	writeFile(t, path, "version: 2\n")
	if _, err := g.Reload(t.Context()); err == nil {
		t.Fatal("a bad file was taken")
	}
	text := g.metrics(t)
	if !strings.Contains(text, `sallyport_reloads_total{outcome="refused"} 1`) || !strings.Contains(text, "\nsallyport_last_reload_successful 0\n") {
		t.Errorf("a refused file is not told:\n%s", text)
	}
}

// The listener answers operators, and no cell.
//
// probe: N8
// oracle: what a client of a cell gets, beside one of the operator's
func TestMetricsListener(t *testing.T) {
	ln, err := listener.Metrics(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	g := start(t, upstream(t), func(d *Daemon) { d.MetricsOn = ln })
	get := func(from string) (int, string) {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, addr)
			}}}
		resp, err := client.Get("http://" + ln.Addr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	g.lease(t, "cell-1", cellLease(1, "run-1", "strict"))
	if status, body := get("127.0.0.1"); status != http.StatusOK || !strings.Contains(body, "sallyport_leases 1") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := get("127.77.1.3"); status != http.StatusForbidden || strings.Contains(body, "sallyport_") {
		t.Errorf("to a cell: %d %s", status, body)
	}
	_, err = g.Lease(t.Context(), "cell-2", control.Lease{Run: "run-2", Policy: "strict",
		Address: netip.MustParseAddr("127.0.0.2"), Prefix: netip.MustParsePrefix("127.0.0.0/28")})
	wantError(t, err, http.StatusConflict, control.CodeListen)
	g.stop()
	if c, err := net.DialTimeout("tcp", ln.Addr().String(), time.Second); err == nil {
		c.Close()
		t.Error("the listener is still open")
	}
}

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(sallyport_[a-z_]+)` \\| ([^|]*)\\|")
	labelName = regexp.MustCompile("`([a-z]+)`(?: \\([^)]*\\))?")
)

// The table of docs/operating.md has a row for each metric with its labels.
func TestMetricsAreDocumented(t *testing.T) {
	m := metrics.New()
	newServer(t.Context(), &Daemon{Allowlist: parsePolicies(t, testAllowlist), Metrics: m})
	m.Decided([]account.Record{{BytesUp: 1, BytesDown: 1}})
	m.Asked(resolve.Server{}, 0, true)
	m.Cached(true)
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string][]string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "sallyport_") {
			continue
		}
		labels := []string{}
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		have[f.GetName()] = labels
	}
	doc, err := os.ReadFile("../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string][]string{}
	for _, row := range metricRow.FindAllStringSubmatch(string(doc), -1) {
		if strings.HasPrefix(row[1], "sallyport_executor_") {
			continue // of the other daemon
		}
		labels := []string{}
		for _, l := range labelName.FindAllStringSubmatch(row[2], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		told[row[1]] = labels
	}
	if !maps.EqualFunc(have, told, slices.Equal) {
		t.Errorf("docs/operating.md has the metrics\n%v\nand there are\n%v", told, have)
	}
}
