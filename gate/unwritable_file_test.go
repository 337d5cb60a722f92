package gate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
	"sallyport/gate/decisionlog"
)

func openFile(t *testing.T, path string, limits decisionlog.FileSize) *decisionlog.File {
	t.Helper()
	s, err := decisionlog.OpenFile(path, limits, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// recordsOf reads the records of one file; a line that is not one fails the test.
func recordsOf(t *testing.T, path string) []account.Record {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var records []account.Record
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r account.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v in %q", path, err, lines.Text())
		}
		records = append(records, r)
	}
	return records
}

// ready waits until s has found out by itself that it can write again.
func ready(t *testing.T, s *decisionlog.File) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !s.Ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not ready with room again")
		}
	}
}

// A disk that fails and then hangs holds up nobody: tunnels go on, names and
// connections are refused at once, and all of it is written in the end.
func TestHungDiskHoldsUpNobody(t *testing.T) {
	dir := t.TempDir()
	link, pipe := filepath.Join(dir, "decisions.ndjson"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.Symlink("/dev/full", link), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	var disk *decisionlog.File
	g := start(t, upstream(t), func(d *Daemon) {
		disk = openFile(t, link, decisionlog.FileSize{Bytes: 1 << 20, Files: 2})
		d.File = disk
	})
	g.lease(t, "cell-1", cellLease(1, "run-1", "strict"))
	open, err := g.tunnel(t, 1, "www.site.example")
	if err != nil {
		t.Fatal(err)
	}
	g.wantResolved(t, 1, "first.site.example.") // the write of this one fails
	if disk.Ready() {
		t.Fatal("control: a full disk takes decisions")
	}
	// To open a pipe that nobody reads hangs.
	if err := errors.Join(os.Symlink(pipe, link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
	for held, before := 0, int64(0); held < 5; time.Sleep(decisionlog.RetryAfter) { // until a try hangs
		if held++; disk.Faults() != before {
			held, before = 0, disk.Faults()
		}
	}
	for range 3 {
		if err := echo(open); err != nil {
			t.Errorf("a tunnel that was open: %v", err)
		}
		g.wantNXDOMAIN(t, 1, "www.site.example.")
		if c, err := g.tunnel(t, 1, "www.site.example"); err == nil {
			c.Close()
			t.Error("a connection was allowed that cannot be written")
		}
	}
	open.Close()
	g.eventually(t, "the tunnel's end", func(h control.Health) bool {
		cell, err := g.Client.Cell(t.Context(), "cell-1")
		return err == nil && h.Status == control.StatusDenying && count(cell.Receipt, account.KindTLS, "www.site.example", firewall.ReasonListed) == 1
	})

	f, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for _, want := range []string{"dns first.site.example", "tls www.site.example"} {
		var r account.Record
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &r) != nil || fmt.Sprint(r.Kind, " ", r.Host) != want {
			t.Errorf("the line %q is not of %s", lines.Text(), want)
		}
	}
	ready(t, disk)
	g.wantResolved(t, 1, "last.site.example.")
	g.stop()
	if err := disk.Close(); err != nil {
		t.Error(err)
	}
}

// A full disk denies rather than forgets: names, connections and requests, with
// a reason, until there is room; nothing that was allowed is missing then.
//
// probe: L6
// oracle: a real full device: names and tunnels refused with their reason in the
// receipt, and the file afterwards, from which nothing allowed is missing
func TestFullDiskDenies(t *testing.T) {
	dir := t.TempDir()
	link, file := filepath.Join(dir, "current"), filepath.Join(dir, "decisions.ndjson")
	point := func(to string) {
		t.Helper()
		if err := os.Symlink(to, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
	}
	point("/dev/full")
	var disk *decisionlog.File
	g := start(t, upstream(t), func(d *Daemon) {
		var err error
		if disk, err = decisionlog.OpenFile(link, decisionlog.FileSize{Bytes: 1 << 20, Files: 2}, d.Log); err != nil {
			t.Fatal(err)
		}
		d.File = disk
	})
	g.lease(t, "cell-1", cellLease(1, "run-1", "strict"))

	open, err := g.tunnel(t, 1, "www.site.example") // nothing was to be written yet
	if err != nil {
		t.Fatal(err)
	}
	g.wantResolved(t, 1, "first.site.example.") // the write of this one fails
	refused := func() {
		t.Helper()
		g.wantNXDOMAIN(t, 1, "www.site.example.")
		if c, err := g.tunnel(t, 1, "www.site.example"); err == nil {
			c.Close()
			t.Error("a connection was allowed that cannot be written")
		}
	}
	refused()
	if err := echo(open); err != nil {
		t.Errorf("a tunnel that was open: %v", err)
	}
	open.Close()
	g.eventually(t, "the tunnel's end", func(h control.Health) bool {
		cell, err := g.Client.Cell(t.Context(), "cell-1")
		return err == nil && count(cell.Receipt, account.KindTLS, "www.site.example", firewall.ReasonListed) == 1
	})
	refused()
	if h, err := g.Health(t.Context()); err != nil || h.Status != control.StatusDenying || !strings.Contains(h.Warnings[0], "cannot be written") {
		t.Errorf("health %+v, %v", h, err)
	}
	if _, body, _ := g.request(t, http.MethodGet, "/metrics", ""); strings.Contains(body, "\nsallyport_log_sink_errors_total 0\n") {
		t.Error("the metric does not tell")
	}

	point(file)
	g.eventually(t, "names again", func(h control.Health) bool { return h.Status == control.StatusOK })
	g.wantResolved(t, 1, "last.site.example.")
	cell := g.release(t, "cell-1")
	for _, kind := range []account.Kind{account.KindDNS, account.KindTLS} {
		if n := count(cell.Receipt, kind, "www.site.example", firewall.ReasonLog); n != 2 {
			t.Errorf("%d denials of kind %s in the receipt, want 2", n, kind)
		}
	}
	g.stop()
	if err := disk.Close(); err != nil {
		t.Error(err)
	}
	var got []string
	for _, r := range recordsOf(t, file) {
		got = append(got, fmt.Sprint(r.Kind, " ", r.Host, " ", r.Reason))
	}
	want := "dns first.site.example listed, tls www.site.example listed, dropped  , dns last.site.example listed"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("the file has\n%s\nwant\n%s", s, want)
	}
}
