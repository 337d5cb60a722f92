package gate

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// A leased cell has a DNS server, a tunnel and a forwarder; its receipt and the
// log have every decision.
//
// probe: P4
// oracle: the receipt and the log, which have each decision once
func TestLease(t *testing.T) {
	g := start(t, upstream(t), nil)
	want := cellLease(1, "run-1", "strict")
	cell := g.lease(t, "c1", want)
	policy, _ := g.daemon.Allowlist.Policy("strict")
	if cell.ID != "c1" || cell.Lease != want || cell.Digest != policy.Digest() || len(cell.Receipt.Hosts) != 0 {
		t.Errorf("leased %+v", cell)
	}

	g.wantResolved(t, 1, "www.site.example.")
	g.wantNXDOMAIN(t, 1, "other.example.")
	conn, err := g.tunnel(t, 1, "www.site.example")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if _, err := g.tunnel(t, 1, "other.example"); err == nil {
		t.Error("a tunnel to an unlisted host")
	}
	web := g.client(t, "tcp4", 1, g.daemon.ports.http)
	if _, err := web.Write([]byte("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(web), nil)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("http: %v %v, want 403", resp, err)
	}

	final := g.release(t, "c1")
	r := final.Receipt
	if r.Policy != "strict" || r.Digest != policy.Digest() {
		t.Errorf("receipt of %s %s", r.Policy, r.Digest)
	}
	for _, row := range []struct {
		kind   account.Kind
		host   string
		reason firewall.Reason
	}{
		{account.KindDNS, "www.site.example", firewall.ReasonListed},
		{account.KindDNS, "other.example", firewall.ReasonNotListed},
		{account.KindTLS, "www.site.example", firewall.ReasonListed},
		{account.KindTLS, "other.example", firewall.ReasonNotListed},
		{account.KindHTTP, "other.example", firewall.ReasonNotListed},
	} {
		if n := count(r, row.kind, row.host, row.reason); n != 1 {
			t.Errorf("%d of %+v in the receipt, want 1", n, row)
		}
	}
	if len(r.Hosts) != 5 {
		t.Errorf("receipt %+v", r)
	}
	i := slices.IndexFunc(r.Hosts, func(h account.ReceiptHost) bool { return h.Kind == account.KindTLS && h.Verdict == firewall.Allow })
	if h := r.Hosts[i]; h.Port != 443 || h.BytesUp == 0 || h.BytesDown == 0 {
		t.Errorf("tunnel's row %+v", h)
	}
	g.wantLogged(t, 5)

	_, err = g.Cell(t.Context(), "c1")
	wantError(t, err, 404, control.CodeNotLeased)
	_, err = g.Release(t.Context(), "c1")
	wantError(t, err, 404, control.CodeNotLeased)
}

// wantLogged wants n lines of decisions in the log, each complete.
func (g *testGate) wantLogged(t *testing.T, n int) {
	t.Helper()
	for line := range strings.Lines(g.log.String()) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if r["msg"] != "decision" {
			continue
		}
		n--
		if r["run"] != "run-1" || r["cell"] != "c1" || r["policy"] != "strict" || r["digest"] == "" || r["verdict"] == "" {
			t.Errorf("line %q", line)
		}
	}
	if n != 0 {
		t.Errorf("%d lines too few", n)
	}
}

// After a restart there are no leases, and nobody listens.
//
// probe: L3, L11, P4
// oracle: the ports of the cell after the restart, and the tunnel from before it; a new
// lease serves again
func TestRestartHasNoLeases(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	tunnel, err := g.tunnel(t, 1, "www.site.example")
	if err != nil {
		t.Fatal(err)
	}
	before, err := g.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g.stop()
	if err := echo(tunnel); err == nil {
		t.Error("a tunnel outlived the gate")
	}
	if _, err := g.Health(t.Context()); err == nil {
		t.Error("the control socket outlived the gate")
	}

	again := start(t, upstream(t), func(d *Daemon) { d.ports = g.daemon.ports })
	after, err := again.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if before.Instance == after.Instance || before.Instance == "" || after.Cells != 0 || before.Cells != 1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
	_, err = again.Cell(t.Context(), "c1")
	wantError(t, err, 404, control.CodeNotLeased)
	if c, err := again.dialCell("tcp4", 1, 1, again.daemon.ports.tls); err == nil {
		c.Close()
		t.Error("an unleased cell has a listener")
	}
	again.lease(t, "c1", cellLease(1, "run-1", "strict"))
	again.wantResolved(t, 1, "www.site.example.")
}

// TestLeaseIsRefused asks for leases that no cell can have.
//
// oracle: the list of leases, which stays empty; a good lease serves afterwards
func TestLeaseIsRefused(t *testing.T) {
	g := start(t, upstream(t), nil)
	good := cellLease(1, "run-1", "strict")
	with := func(change func(*control.Lease)) control.Lease {
		l := good
		change(&l)
		return l
	}
	for _, test := range []struct {
		name, id string
		lease    control.Lease
		status   int
		code     string
	}{
		// probe: L12
		{"path", "../x", good, 400, control.CodeInvalid},
		{"dots", "..", good, 404, control.CodeNotFound}, // not a segment of a path
		{"upper case", "C1", good, 400, control.CodeInvalid},
		{"space", "c 1", good, 400, control.CodeInvalid},
		{"leading hyphen", "-c", good, 400, control.CodeInvalid},
		{"newline", "c1\n", good, 400, control.CodeInvalid},
		{"long", strings.Repeat("a", 64), good, 400, control.CodeInvalid},

		{"no run", "c1", with(func(l *control.Lease) { l.Run = "" }), 400, control.CodeInvalid},
		{"run with newline", "c1", with(func(l *control.Lease) { l.Run = "a\nb" }), 400, control.CodeInvalid},
		{"no policy", "c1", with(func(l *control.Lease) { l.Policy = "" }), 400, control.CodeInvalid},
		{"unknown policy", "c1", with(func(l *control.Lease) { l.Policy = "lax" }), 422, control.CodeNoPolicy},
		{"no address", "c1", with(func(l *control.Lease) { l.Address = netip.Addr{} }), 400, control.CodeInvalid},
		{"IPv6", "c1", with(func(l *control.Lease) { l.Address = netip.IPv6Loopback() }), 400, control.CodeInvalid},
		{"no prefix", "c1", with(func(l *control.Lease) { l.Prefix = netip.Prefix{} }), 400, control.CodeInvalid},
		{"wide prefix", "c1", with(func(l *control.Lease) { l.Prefix = netip.MustParsePrefix("0.0.0.0/0") }), 400, control.CodeInvalid},
		{"narrow prefix", "c1", with(func(l *control.Lease) { l.Prefix = netip.PrefixFrom(l.Address, 32) }), 400, control.CodeInvalid},
		{"prefix with host", "c1", with(func(l *control.Lease) { l.Prefix = netip.PrefixFrom(l.Address, 28) }), 400, control.CodeInvalid},
		{"outside", "c1", with(func(l *control.Lease) { l.Address = netip.MustParseAddr("127.77.1.99") }), 400, control.CodeInvalid},
		{"pool elsewhere", "c1", with(func(l *control.Lease) { l.Pool = netip.MustParsePrefix("10.0.0.0/8") }), 400, control.CodeInvalid},
		{"pool with host", "c1", with(func(l *control.Lease) { l.Pool = netip.PrefixFrom(l.Address, 16) }), 400, control.CodeInvalid},
		{"narrow pool", "c1", with(func(l *control.Lease) { l.Pool = netip.PrefixFrom(l.Prefix.Addr(), 29) }), 400, control.CodeInvalid},
		{"not local", "c1", control.Lease{Run: "r", Policy: "strict", Address: netip.MustParseAddr("203.0.113.66"),
			Prefix: netip.MustParsePrefix("203.0.113.64/28")}, 409, control.CodeListen},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := g.Lease(t.Context(), test.id, test.lease)
			wantError(t, err, test.status, test.code)
		})
	}
	if list, err := g.Cells(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("leases after refusals: %v, %v", list, err)
	}

	g.lease(t, "c1", good)
	for _, test := range []struct {
		id    string
		lease control.Lease
	}{
		{"c1", good},
		{"c1", cellLease(2, "run-2", "other")},
		{"c2", good},
		{"c2", with(func(l *control.Lease) { l.Address = netip.MustParseAddr("127.77.1.4") })},
	} {
		_, err := g.Lease(t.Context(), test.id, test.lease)
		wantError(t, err, 409, control.CodeLeased)
	}
	g.wantResolved(t, 1, "www.site.example.")
	g.lease(t, "c2", cellLease(2, "run-2", "other"))
	list, err := g.Cells(t.Context())
	if err != nil || len(list) != 2 || list[0].ID != "c1" || list[1].ID != "c2" || list[1].Run != "run-2" {
		t.Errorf("leases %+v, %v", list, err)
	}
}

// A lease opens all its ports or none.
//
// probe: P4
// oracle: the other ports of the cell, which stay closed until the lease is whole
func TestLeaseIsAllOrNothing(t *testing.T) {
	g := start(t, upstream(t), nil)
	l := cellLease(1, "run-1", "strict")
	taken, err := net.Listen("tcp4", netip.AddrPortFrom(l.Address, g.daemon.ports.http).String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Lease(t.Context(), "c1", l)
	wantError(t, err, 409, control.CodeListen)
	for _, port := range []uint16{g.daemon.ports.dns, g.daemon.ports.tls} {
		if c, err := g.dialCell("tcp4", 1, 1, port); err == nil {
			c.Close()
			t.Errorf("port %d is open", port)
		}
	}
	taken.Close()
	g.lease(t, "c1", l)
	g.wantResolved(t, 1, "www.site.example.")
}

// A cell whose server fails is closed as a whole, its stream breaks, and it can
// still be released.
//
// probe: P4
// oracle: the other ports of the cell, which close with the one that fails
func TestFailedCell(t *testing.T) {
	g := start(t, upstream(t), nil)
	s := newServer(t.Context(), g.daemon)
	l := cellLease(1, "run-1", "strict")
	sockets, err := s.listen(l.Address)
	if err != nil {
		t.Fatal(err)
	}
	policy, _ := g.daemon.Allowlist.Policy("strict")
	ctx, cancel := context.WithCancel(t.Context())
	failing := s.newLease("c1", l, policy, cancel)
	s.leases["c1"] = failing
	sockets.TLS.Close()
	s.serve(ctx, failing, sockets)

	if b := failing.journal.Read(0, make([]account.Record, 1)); !b.Over || b.Complete {
		t.Errorf("journal %+v, want it broken", b)
	}
	if c, err := g.dialCell("tcp4", 1, 1, g.daemon.ports.dns); err == nil {
		c.Close()
		t.Error("a part of a failed cell is open")
	}
	if _, err := s.release(t.Context(), "c1"); err != nil {
		t.Errorf("release: %v", err)
	}
	if len(s.leases) != 0 || len(s.runs) != 0 {
		t.Errorf("left: %v %v", s.leases, s.runs)
	}
}

// Two calls to release the same cell both get the final receipt, or the later
// one learns that there is no lease.
func TestReleaseTwiceAtOnce(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.wantResolved(t, 1, "www.site.example.")
	type result struct {
		cell control.Cell
		err  error
	}
	results := make(chan result, 2)
	for range 2 {
		go func() {
			c, err := g.Release(context.Background(), "c1")
			results <- result{c, err}
		}()
	}
	got := 0
	for range 2 {
		select {
		case r := <-results:
			if r.err != nil {
				wantError(t, r.err, 404, control.CodeNotLeased)
				continue
			}
			got++
			if n := count(r.cell.Receipt, account.KindDNS, "www.site.example", firewall.ReasonListed); n != 1 {
				t.Errorf("receipt %+v", r.cell.Receipt)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("a release hangs")
		}
	}
	if got == 0 {
		t.Error("nobody got the receipt")
	}
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
}

// A cell that cannot be served has no socket left open: its address is free for
// the next lease.
func TestFailedCellClosesItsSockets(t *testing.T) {
	g := start(t, upstream(t), func(d *Daemon) { d.Cache = CacheSize{Names: 1, Least: time.Hour, Most: time.Second} })
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.eventually(t, "the cell to fail", func(control.Health) bool { return strings.Contains(g.log.String(), "cell failed") })
	g.release(t, "c1")
	sockets, err := g.server.listen(cellLease(1, "run-1", "strict").Address)
	if err != nil {
		t.Fatal(err)
	}
	sockets.Close()
}
