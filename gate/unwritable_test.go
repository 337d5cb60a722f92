package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/gate/control"
	"sallyport/gate/decisionlog"
	"sallyport/gate/listener"
	"sallyport/internal/output"
)

// A breakable writer fails as long as it is told to.
type breakable struct {
	to     *output.Buffer
	broken atomic.Bool
}

func (b *breakable) Write(p []byte) (int, error) {
	if b.broken.Load() {
		return 0, errors.New("no space left on device")
	}
	return b.to.Write(p)
}

// breaking starts a gate whose allowlist can be reloaded and whose log of
// decisions, or else file of them, can be broken.
func breaking(t *testing.T, file bool) (g *testGate, setBroken func(bool)) {
	t.Helper()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "allowlist.yaml"), filepath.Join(dir, "decisions")
	writeFile(t, path, testAllowlist)
	log := &breakable{}
	setBroken = log.broken.Store
	if file {
		setBroken = func(broken bool) {
			t.Helper()
			to := filepath.Join(dir, "file")
			if broken {
				to = "/dev/full"
			}
			if err := errors.Join(os.Symlink(to, link+".new"), os.Rename(link+".new", link)); err != nil {
				t.Fatal(err)
			}
		}
		setBroken(true) // an open one stays what it is
	}
	g = start(t, upstream(t), func(d *Daemon) {
		log.to = d.Decisions.(*output.Buffer)
		d.Decisions = log
		d.Load = func() (*allowlist.File, error) { return allowlist.Load(path) }
		if file {
			d.File = openFile(t, link, decisionlog.FileSize{Bytes: 1 << 20, Files: 2})
		}
	})
	return g, setBroken
}

// While the log cannot be written, whatever is new is denied, with a reason, and
// health says so; then everything goes on, and no allowed one lacks its line.
//
// probe: L6
// oracle: names, tunnels and requests that are refused, beside a tunnel that was open;
// health and metrics; every allowance of the receipt in the log afterwards
func TestLogThatFailsDenies(t *testing.T) {
	g, setBroken := breaking(t, false)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	open, err := g.tunnel(t, 1, "open.site.example")
	if err != nil {
		t.Fatal(err)
	}
	setBroken(true)
	c := &dns.Conn{Conn: g.client(t, "udp4", 1, g.daemon.ports.dns)}
	if err := c.WriteMsg(new(dns.Msg).SetQuestion("first.site.example.", dns.TypeA)); err != nil {
		t.Fatal(err)
	}
	denying := func(h control.Health) bool {
		return h.Status == control.StatusDenying && strings.Contains(h.Warnings[0], "cannot be written to the log")
	}
	g.eventually(t, "the gate to notice", denying)

	const times = 3
	for range times {
		g.wantNXDOMAIN(t, 1, "www.site.example.")
		if _, err := g.tunnel(t, 1, "www.site.example"); err == nil {
			t.Error("a tunnel that cannot be written")
		}
		if status := g.get(t, 1, "www.site.example"); status != http.StatusForbidden {
			t.Errorf("a request that cannot be written: status %d", status)
		}
		time.Sleep(decisionlog.RetryAfter) // it tries again, in vain
	}
	if h, err := g.Health(t.Context()); err != nil || !denying(h) {
		t.Errorf("health %+v, %v", h, err)
	}
	if strings.Contains(g.metrics(t), "\nsallyport_log_sink_errors_total 0\n") {
		t.Error("the metric does not tell")
	}
	if err := echo(open); err != nil {
		t.Errorf("a tunnel that was open: %v", err)
	}
	open.Close()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if m, err := c.ReadMsg(); err == nil {
		t.Errorf("a name that could not be written: %v", m)
	}

	setBroken(false)
	g.eventually(t, "the log again", func(h control.Health) bool { return h.Status == control.StatusOK })
	g.wantResolved(t, 1, "www.site.example.")
	if c, err := g.tunnel(t, 1, "www.site.example"); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	g.get(t, 1, "www.site.example")
	r := g.release(t, "c1").Receipt
	for _, kind := range []account.Kind{account.KindDNS, account.KindTLS, account.KindHTTP} {
		if n := count(r, kind, "www.site.example", firewall.ReasonLog); n != times {
			t.Errorf("%d denials of kind %s, want %d", n, kind, times)
		}
		if n := count(r, kind, "www.site.example", firewall.ReasonListed); n != 1 {
			t.Errorf("%d allowances of kind %s afterwards, want 1", n, kind)
		}
	}
	for _, h := range r.Hosts {
		line := fmt.Sprintf(`"kind":"%s","host":"%s","port":%d,"verdict":"allow"`, h.Kind, h.Host, h.Port)
		if n := strings.Count(g.log.String(), line); h.Verdict == firewall.Allow && int64(n) != h.Count {
			t.Errorf("%d lines of %+v", n, h)
		}
	}
}

// A gate that ends with decisions that it could not write says how many.
func TestLogThatFailsToTheEnd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "control.sock")
	ln, err := listener.Control(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	log := &breakable{}
	log.broken.Store(true)
	d := &Daemon{
		Allowlist: parsePolicies(t, testAllowlist), Resolver: testResolver(t), Decisions: log,
		Log: slog.New(slog.DiscardHandler), ports: freePorts(t),
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, ln) }()
	g := &testGate{Client: &control.Client{Socket: socket}, daemon: d}
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.wantNothingWritten(t)
	g.wantNXDOMAIN(t, 1, "www.site.example.")
	stop()
	select {
	case err := <-done:
		if err == nil || !strings.Contains(err.Error(), "1 decisions are lost, and 1 denials were not written") {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Serve did not return")
	}
}

// A reload cuts nothing for want of a log: what the allowlist still allows goes
// on, and what it no longer does is cut as ever.
//
// probe: L6, P5
// oracle: the far ends of tunnels that were open, and the receipt
func TestReloadWhileNothingCanBeWritten(t *testing.T) {
	for name, file := range map[string]bool{"log": false, "file": true} {
		t.Run(name, func(t *testing.T) {
			g, setBroken := breaking(t, file)
			g.lease(t, "c1", cellLease(1, "run-1", "strict"))
			kept, err := g.tunnel(t, 1, "kept.site.example")
			if err != nil {
				t.Fatal(err)
			}
			lost, err := g.tunnel(t, 1, "lost.site.example")
			if err != nil {
				t.Fatal(err)
			}
			setBroken(true)
			g.wantNothingWritten(t)
			if _, err := g.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(echo(kept), echo(lost)); err != nil {
				t.Errorf("the same allowlist has cut a tunnel: %v", err)
			}
			load := g.server.Load
			g.server.Load = func() (*allowlist.File, error) { return parsePolicies(t, narrowed), nil }
			if _, err := g.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
			g.server.Load = load
			if err := echo(kept); err != nil {
				t.Errorf("a tunnel that is still allowed: %v", err)
			}
			if err := echo(lost); err == nil {
				t.Error("a tunnel that is no longer allowed goes on")
			}
			if _, err := g.tunnel(t, 1, "kept.site.example"); err == nil {
				t.Error("a new tunnel while nothing can be written")
			}
			setBroken(false)
			g.eventually(t, "all to be written", func(h control.Health) bool { return h.Status == control.StatusOK })
			kept.Close()
			r := g.release(t, "c1").Receipt
			for host, reasons := range map[string]map[firewall.Reason]int64{
				"kept.site.example": {firewall.ReasonListed: 1, firewall.ReasonLog: 1, firewall.ReasonPolicyChanged: 0},
				"lost.site.example": {firewall.ReasonPolicyChanged: 1, firewall.ReasonListed: 1},
			} {
				for reason, want := range reasons {
					if n := count(r, account.KindTLS, host, reason); n != want {
						t.Errorf("%d of %s as %s, want %d", n, host, reason, want)
					}
				}
			}
		})
	}
}

// wantNothingWritten has the gate find that its log or file is broken.
func (g *testGate) wantNothingWritten(t *testing.T) {
	t.Helper()
	c := g.client(t, "udp4", 1, g.daemon.ports.dns)
	msg, err := new(dns.Msg).SetQuestion("first.site.example.", dns.TypeA).Pack()
	if err == nil {
		_, err = c.Write(msg)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.eventually(t, "the gate to notice", func(h control.Health) bool { return h.Status == control.StatusDenying })
}
