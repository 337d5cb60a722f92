package gate

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/gate/control"
	"sallyport/gate/settings"
	"sallyport/gate/watch"
)

// narrowed is the allowlist of these tests without the group site in strict, and
// without the policy other.
const narrowed = `version: 1
policies:
  strict: {allow: [{host: kept.site.example, ports: [80, 443], private: [10.0.0.0/8]}]}
  open:   {allow: any}
`

// reloading starts a daemon whose allowlist is the file at path.
func reloading(t *testing.T, watched bool) (g *testGate, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "allowlist.yaml")
	writeFile(t, path, testAllowlist)
	file := &watch.Files{Path: path}
	g = start(t, upstream(t), func(d *Daemon) {
		ps, err := file.Load()
		if err != nil {
			t.Fatal(err)
		}
		d.Allowlist, d.Load = ps, file.Load
		if watched {
			d.Watch = func(ctx context.Context, reload func()) { file.Watch(ctx, nil, reload, slog.New(slog.DiscardHandler)) }
		}
	})
	return g, path
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// saveByRename saves as most editors do: another file takes the place.
func saveByRename(t *testing.T, path, text string) {
	t.Helper()
	writeFile(t, path+".tmp", text)
	if err := os.Rename(path+".tmp", path); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until health is as wanted.
func (g *testGate) eventually(t *testing.T, what string, ok func(control.Health) bool) control.Health {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		h, err := g.Health(t.Context())
		if err == nil && ok(h) {
			return h
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %+v, %v", what, h, err)
		}
	}
}

// TestRefusedPrefixes has a host lead to an address that its entry admits and the
// settings refuse, before and after the allowlist is read anew.
//
// probe: R1
// oracle: the receipt; a gate without the setting, which reaches the far end
func TestRefusedPrefixes(t *testing.T) {
	for setting, refused := range map[string]bool{"10.0.0.2/32": false, "10.0.0.0/31": true} { // it leads to 10.0.0.1
		set, err := settings.Parse([]string{"SALLYPORT_REFUSED_PREFIXES=" + setting, "SALLYPORT_RESOLVERS=192.0.2.1"})
		if err != nil {
			t.Fatal(err)
		}
		set.Allowlist = filepath.Join(t.TempDir(), "allowlist.yaml")
		writeFile(t, set.Allowlist, testAllowlist)
		files, err := newFiles(set)
		if err != nil {
			t.Fatal(err)
		}
		g := start(t, upstream(t), func(d *Daemon) {
			if d.Allowlist, err = files.load(); err != nil {
				t.Fatal(err)
			}
			d.Load = files.load
		})
		g.lease(t, "c1", cellLease(1, "run-1", "strict"))
		for range 2 {
			c, err := g.tunnel(t, 1, "kept.site.example")
			if (err != nil) != refused {
				t.Errorf("with %s refused: %v", setting, err)
			}
			if err == nil {
				c.Close()
			}
			if _, err := g.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		cell, err := g.Release(t.Context(), "c1")
		if err != nil {
			t.Fatal(err)
		}
		var got []firewall.Reason
		for _, h := range cell.Receipt.Hosts {
			got = append(got, h.Reason)
		}
		want := firewall.ReasonListed
		if refused {
			want = firewall.ReasonAddress
		}
		if !slices.Equal(got, []firewall.Reason{want}) || cell.Receipt.Hosts[0].Count != 2 {
			t.Errorf("with %s refused the receipt has %+v, want %s twice", setting, cell.Receipt.Hosts, want)
		}
	}
}

// A heldLog keeps those who write waiting while it is held, as a pipe does that
// nobody reads.
type heldLog struct {
	held    sync.Mutex
	waiting chan struct{} // gets a value for each line that waits
}

func (l *heldLog) Write(p []byte) (int, error) {
	if !l.held.TryLock() {
		l.waiting <- struct{}{}
		l.held.Lock()
	}
	defer l.held.Unlock()
	return len(p), nil
}

// A log that nobody reads holds up who has a line for it, and nobody else: cells are
// leased, shown and listed while a reload waits to say what it has changed.
func TestBlockedLogStallsNobody(t *testing.T) {
	log := &heldLog{waiting: make(chan struct{}, 64)}
	narrow := parsePolicies(t, narrowed)
	g := start(t, upstream(t), func(d *Daemon) {
		d.Log = slog.New(slog.NewJSONHandler(log, nil))
		d.Load = func() (*allowlist.File, error) { return narrow, nil }
	})
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))

	log.held.Lock()
	reloaded := make(chan error, 1)
	go func() {
		_, err := g.Reload(t.Context())
		reloaded <- err
	}()
	<-log.waiting
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, leased := g.Lease(ctx, "c2", cellLease(2, "run-2", "strict"))
	health, asked := g.Health(ctx)
	cells, listed := g.Cells(ctx)
	if err := errors.Join(leased, asked, listed); err != nil || health.Generation != 2 || len(cells) != 2 {
		t.Errorf("while the log is blocked: %v, %+v, %+v", err, health, cells)
	}
	select {
	case err := <-reloaded:
		t.Errorf("control: the reload has not waited for its line: %v", err)
	default:
	}
	log.held.Unlock()
	if err := <-reloaded; err != nil {
		t.Error(err)
	}
	if _, err := g.Release(t.Context(), "c2"); err != nil {
		t.Error(err)
	}
}

// A change of policy cuts the tunnel that is no longer allowed, with a record of
// its own, and leaves every other one alone, in this cell and in another.
//
// probe: P5
// oracle: the far ends of two tunnels, of which one is cut; the receipt
func TestReloadCutsTunnels(t *testing.T) {
	g, path := reloading(t, false)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "open"))
	before, err := g.Cell(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	lost, err := g.tunnel(t, 1, "lost.site.example")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := g.tunnel(t, 1, "kept.site.example")
	if err != nil {
		t.Fatal(err)
	}

	// The same effect in other words disturbs nothing and is no change.
	writeFile(t, path, "# a comment\n"+testAllowlist)
	if h, err := g.Reload(t.Context()); err != nil || h.Generation != 2 || h.Digest != g.daemon.Allowlist.Digest() {
		t.Fatalf("reload: %+v, %v", h, err)
	}
	if err := echo(lost); err != nil {
		t.Errorf("a comment has cut a tunnel: %v", err)
	}

	writeFile(t, path, narrowed)
	h, err := g.Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := echo(lost); err == nil {
		t.Error("the tunnel to what is no longer allowed goes on")
	}
	if err := echo(kept); err != nil {
		t.Errorf("the tunnel to what is still allowed: %v", err)
	}
	if _, err := g.tunnel(t, 1, "lost.site.example"); err == nil {
		t.Error("a new tunnel to what is no longer allowed")
	}
	kept.Close()

	final := g.release(t, "c1")
	if n := count(final.Receipt, account.KindTLS, "lost.site.example", firewall.ReasonPolicyChanged); n != 1 {
		t.Errorf("%d records of the cut, want 1: %+v", n, final.Receipt)
	}
	if n := count(final.Receipt, account.KindTLS, "kept.site.example", firewall.ReasonListed); n != 1 {
		t.Errorf("%d records of the tunnel that stayed, want 1: %+v", n, final.Receipt)
	}
	for _, row := range final.Receipt.Hosts {
		if row.Host == "lost.site.example" && row.Kind == account.KindTLS && (row.BytesUp > 0) != (row.Verdict == firewall.Allow) {
			t.Errorf("what was cut has its bytes in the wrong row: %+v", row)
		}
	}
	if n := count(final.Receipt, account.KindTLS, "lost.site.example", firewall.ReasonListed); n != 1 {
		t.Errorf("%d decisions to allow what was cut then, want 1: %+v", n, final.Receipt)
	}
	r := final.Receipt
	if r.Digest != before.Digest || len(r.Changes) != 1 || r.Changes[0].Digest != final.Digest || final.Digest == before.Digest ||
		r.Changes[0].Generation != h.Generation || r.Changes[0].Time.IsZero() {
		t.Errorf("receipt of %s with %+v; from %s to %s", r.Digest, r.Changes, before.Digest, final.Digest)
	}
	if other := g.release(t, "c2").Receipt; len(other.Changes) != 0 {
		t.Errorf("the policy of the other cell has changed: %+v", other.Changes)
	}
}

// What takes a host away from a policy counts at once, also where another policy that
// extends it no longer takes anything away by that, and where nothing is left.
//
// probe: P5
// oracle: the far end of a tunnel that was allowed; health, which warns; what the lease resolves
func TestReloadNarrows(t *testing.T) {
	child := "  quiet: {extends: strict, remove: [lost.site.example]}\n"
	for what, narrower := range map[string]string{
		"the child removes nothing any more": narrowed + child,
		"nothing is left":                    "version: 1\npolicies:\n  strict: {allow: []}\n" + child,
	} {
		t.Run(what, func(t *testing.T) {
			g, path := reloading(t, false)
			writeFile(t, path, testAllowlist+child)
			if h, err := g.Reload(t.Context()); err != nil || len(h.Warnings) != 0 {
				t.Fatalf("reload: %+v, %v", h, err)
			}
			g.lease(t, "c1", cellLease(1, "run-1", "strict"))
			lost, err := g.tunnel(t, 1, "lost.site.example")
			if err != nil {
				t.Fatal(err)
			}
			if err := echo(lost); err != nil {
				t.Fatal(err)
			}
			writeFile(t, path, narrower)
			h, err := g.Reload(t.Context())
			if err != nil || h.Allowlist.State != control.AllowlistCurrent || len(h.Warnings) == 0 {
				t.Fatalf("reload: %+v, %v", h, err)
			}
			if err := echo(lost); err == nil {
				t.Error("the tunnel to what is no longer allowed goes on")
			}
			g.wantNXDOMAIN(t, 1, "lost.site.example.")
			if n := count(g.release(t, "c1").Receipt, account.KindTLS, "lost.site.example", firewall.ReasonPolicyChanged); n != 1 {
				t.Errorf("%d records of the cut, want 1", n)
			}
		})
	}
}

// A policy that is gone denies everything in its cell, and says so; it comes back
// with the allowlist that has it again.
func TestReloadWithoutThePolicy(t *testing.T) {
	g, path := reloading(t, false)
	g.lease(t, "c1", cellLease(1, "run-1", "other"))
	conn, err := g.tunnel(t, 1, "other.example")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, narrowed)
	if _, err := g.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := echo(conn); err == nil {
		t.Error("a tunnel of a policy that is gone")
	}
	g.wantNXDOMAIN(t, 1, "other.example.")
	c, err := g.Cell(t.Context(), "c1")
	if err != nil || c.Digest != "" || c.Policy != "other" || c.Receipt.Policy != "other" {
		t.Errorf("cell %+v, %v", c, err)
	}
	if ch := c.Receipt.Changes; len(ch) != 1 || ch[0].Digest != "" {
		t.Errorf("changes %+v", ch)
	}
	if !strings.Contains(g.log.String(), policyGone) {
		t.Error("the log does not say why")
	}
	writeFile(t, path, testAllowlist)
	if _, err := g.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.wantResolved(t, 1, "other.example.")
}

// A request in flight on port 80 is cut, too.
func TestReloadCutsRequests(t *testing.T) {
	arrived, reached := make(chan struct{}), atomic.Bool{}
	silent := httpUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if reached.CompareAndSwap(false, true) {
			close(arrived)
		}
		<-r.Context().Done()
	})
	path := filepath.Join(t.TempDir(), "allowlist.yaml")
	writeFile(t, path, narrowed)
	g := start(t, silent, func(d *Daemon) {
		d.Load = func() (*allowlist.File, error) { return allowlist.Load(path) }
	})
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	c := g.client(t, "tcp4", 1, g.daemon.ports.http)
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: lost.site.example\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-arrived:
	case <-time.After(10 * time.Second):
		t.Fatal("the request does not arrive")
	}
	if _, err := g.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; want a cut", n, err)
	}
	r := g.release(t, "c1").Receipt
	if n := count(r, account.KindHTTP, "lost.site.example", firewall.ReasonPolicyChanged); n != 1 {
		t.Errorf("receipt %+v", r)
	}
}

// The file is seen however it is saved, and a bad one changes nothing.
//
// probe: P2
// oracle: health, and what the lease resolves, after each way to save a file
func TestWatch(t *testing.T) {
	g, path := reloading(t, true)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	stale := func(h control.Health) bool { return h.Allowlist.State == control.AllowlistStale }
	digest := func(text string) func(control.Health) bool {
		want := parsePolicies(t, text).Digest()
		return func(h control.Health) bool { return h.Digest == want && h.Allowlist.State == control.AllowlistCurrent }
	}
	saveByRename(t, path, narrowed)
	g.eventually(t, "saved by rename", digest(narrowed))
	g.wantNXDOMAIN(t, 1, "www.site.example.")

	writeFile(t, path, testAllowlist[:len(testAllowlist)/2])
	h := g.eventually(t, "half written", stale)
	if h.Digest != parsePolicies(t, narrowed).Digest() || h.Status != "ok" {
		t.Errorf("half a file: %+v", h)
	}
	g.wantResolved(t, 1, "kept.site.example.")

	writeFile(t, path, testAllowlist)
	g.eventually(t, "written in place", digest(testAllowlist))
	g.wantResolved(t, 1, "www.site.example.")

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	g.eventually(t, "removed", stale)
	g.wantResolved(t, 1, "www.site.example.")
	saveByRename(t, path, narrowed)
	g.eventually(t, "back", digest(narrowed))

	// A link to a directory that is exchanged, as Kubernetes does it.
	dir := t.TempDir()
	for name, text := range map[string]string{"a": testAllowlist, "b": narrowed} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, name, "allowlist.yaml"), text)
	}
	link := func(target, name string) {
		t.Helper()
		if err := errors.Join(os.Symlink(target, name+".new"), os.Rename(name+".new", name)); err != nil {
			t.Fatal(err)
		}
	}
	link("a", filepath.Join(dir, "now"))
	link(filepath.Join(dir, "now", "allowlist.yaml"), path)
	g.eventually(t, "a link", digest(testAllowlist))
	link("b", filepath.Join(dir, "now"))
	g.eventually(t, "a link that leads elsewhere", digest(narrowed))
}

func httpUpstream(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// A thousand reloads while a run works: what both allowlists allow is never
// disturbed, what neither does never opens, and nothing is left over.
//
// probe: L9
// oracle: a tunnel that echoes all the time, a name that is never allowed, the receipt,
// and the count of goroutines
func TestReloadOften(t *testing.T) {
	g, path := reloading(t, false)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	kept, err := g.tunnel(t, 1, "kept.site.example")
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	done := make(chan error, 1)
	go func() {
		for i := range 1000 {
			text := testAllowlist
			if i%2 == 0 {
				text = narrowed
			}
			if err := errors.Join(os.WriteFile(path+".tmp", []byte(text), 0o600), os.Rename(path+".tmp", path)); err != nil {
				done <- err
				return
			}
			if _, err := g.Reload(context.Background()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for running, probes := true, 0; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		default:
		}
		if err := echo(kept); err != nil {
			t.Fatalf("a tunnel that is always allowed: %v", err)
		}
		kept.SetDeadline(time.Now().Add(10 * time.Second))
		if probes++; probes > 200 { // each has sockets until the test ends
			continue
		}
		g.wantNXDOMAIN(t, 1, "other.example.")
		c, _ := g.tunnel(t, 1, "lost.site.example") // sometimes allowed, sometimes cut
		c.Close()
	}
	h, err := g.Health(t.Context())
	if err != nil || h.Generation != 1001 {
		t.Errorf("health %+v, %v", h, err)
	}
	kept.Close()
	r := g.release(t, "c1").Receipt
	if n := count(r, account.KindTLS, "kept.site.example", firewall.ReasonListed); n != 1 {
		t.Errorf("%d records of the tunnel, want 1", n)
	}
	for _, row := range r.Hosts {
		if row.Host == "other.example" && row.Verdict == firewall.Allow {
			t.Errorf("allowed meanwhile: %+v", row)
		}
	}
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
