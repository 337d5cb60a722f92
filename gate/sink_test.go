package gate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

func openSink(t *testing.T, path string, limits SinkSize) *Sink {
	t.Helper()
	s, err := OpenSink(path, limits, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sunk reads the records of one file; a line that is not one fails the test.
func sunk(t *testing.T, path string) []account.Record {
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

func hostRecord(i int) account.Record {
	return account.Record{Time: time.Now(), Kind: account.KindTLS, Host: fmt.Sprintf("h%d.example", i),
		Verdict: firewall.Allow, Reason: firewall.ReasonListed}
}

// The files are bounded in size and number, and what they hold is the latest,
// without gaps. A sink that is opened again goes on.
func TestSinkRotates(t *testing.T) {
	for _, atOnce := range []int{1, 100} {
		t.Run(fmt.Sprint(atOnce, " at once"), func(t *testing.T) { sinkRotates(t, atOnce) })
	}
}

func sinkRotates(t *testing.T, atOnce int) {
	path := filepath.Join(t.TempDir(), "decisions.ndjson")
	limits := SinkSize{Bytes: 4096, Files: 3}
	const n = 200
	s := openSink(t, path, limits)
	var batch []account.Record
	for i := range n {
		if i == n/2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openSink(t, path, limits)
		}
		if batch = append(batch, hostRecord(i)); len(batch) == atOnce {
			s.Add(batch...)
			batch = nil
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var all []account.Record
	for _, name := range []string{path + ".2", path + ".1", path} {
		info, err := os.Stat(name)
		if err != nil || info.Size() > limits.Bytes || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		all = append(all, sunk(t, name)...)
	}
	for i, r := range all {
		if want := fmt.Sprintf("h%d.example", n-len(all)+i); r.Host != want {
			t.Fatalf("record %d is of %s, want %s", i, r.Host, want)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 3 || len(all) < 20 {
		t.Errorf("%d files, %d records", len(entries), len(all))
	}
}

func TestOpenSinkRefuses(t *testing.T) {
	dir := t.TempDir()
	for path, limits := range map[string]SinkSize{
		dir:                           {Bytes: 4096, Files: 2},
		filepath.Join(dir, "no", "x"): {Bytes: 4096, Files: 2},
		filepath.Join(dir, "a"):       {Bytes: 100, Files: 2},
		filepath.Join(dir, "b"):       {Bytes: 4096},
	} {
		if _, err := OpenSink(path, limits, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s with %+v was opened", path, limits)
		}
	}
}

// A disk that is full in the middle of a line: the half is taken back, and the
// line is written when there is room.
//
// probe: L6
// oracle: the file, read line by line
func TestSinkHalfLine(t *testing.T) {
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "decisions.ndjson")
	s := openSink(t, path, SinkSize{Bytes: 1 << 20, Files: 1})
	defer set(was)
	set(unix.Rlimit{Cur: 5000, Max: was.Max})
	n := 0
	for ; s.Ready() && n < 100; n++ {
		s.Add(hostRecord(n))
	}
	if n == 100 {
		t.Fatal("the limit was not reached")
	}
	s.Add(hostRecord(n)) // one that was decided before
	if got := len(sunk(t, path)); got != n-1 {
		t.Errorf("%d whole lines after %d", got, n)
	}
	set(was)
	ready(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for i, r := range sunk(t, path) {
		if r.Host != fmt.Sprintf("h%d.example", i) || i > n {
			t.Errorf("record %d is of %s", i, r.Host)
		}
	}
}

// ready waits until s has found out by itself that it can write again.
func ready(t *testing.T, s *Sink) {
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
	var sink *Sink
	g := start(t, upstream(t), func(d *Daemon) {
		sink = openSink(t, link, SinkSize{Bytes: 1 << 20, Files: 2})
		d.Sink = sink
	})
	g.lease(t, "cell-1", cellLease(1, "run-1", "strict"))
	open, err := g.tunnel(t, 1, "www.site.example")
	if err != nil {
		t.Fatal(err)
	}
	g.wantResolved(t, 1, "first.site.example.") // the write of this one fails
	if sink.Ready() {
		t.Fatal("control: a full disk takes decisions")
	}
	// To open a pipe that nobody reads hangs.
	if err := errors.Join(os.Symlink(pipe, link+".new"), os.Rename(link+".new", link)); err != nil {
		t.Fatal(err)
	}
	for held := 0; held < 5; time.Sleep(retryAfter) { // until a try hangs
		if held++; sink.writing.TryLock() {
			held = 0
			sink.writing.Unlock()
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
	ready(t, sink)
	g.wantResolved(t, 1, "last.site.example.")
	g.stop()
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
}

// What waits is bounded, denials do not take the room of allowances, and a sink
// that ends with some left says so.
func TestSinkPendingIsBounded(t *testing.T) {
	link := filepath.Join(t.TempDir(), "decisions.ndjson")
	if err := os.Symlink("/dev/full", link); err != nil {
		t.Fatal(err)
	}
	s := openSink(t, link, SinkSize{Bytes: 4096, Files: 2})
	denied := account.Record{Verdict: firewall.Deny, Reason: firewall.ReasonBadName}
	pending := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pending)
	}
	for range maxPending {
		s.Add(denied)
	}
	if n := pending(); n != maxPending/2 {
		t.Errorf("%d denials wait", n)
	}
	for i := range maxPending {
		s.Add(hostRecord(i))
	}
	s.Add(account.Record{Verdict: firewall.Deny, Reason: firewall.ReasonLog})
	if pending() != maxPending || s.lost != maxPending || s.refused != 1 {
		t.Errorf("%d wait, %d lost, %d refused", len(s.pending), s.lost, s.refused)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(2*maxPending)) {
		t.Errorf("closing: %v", err)
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
	var sink *Sink
	g := start(t, upstream(t), func(d *Daemon) {
		var err error
		if sink, err = OpenSink(link, SinkSize{Bytes: 1 << 20, Files: 2}, d.Log); err != nil {
			t.Fatal(err)
		}
		d.Sink = sink
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
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
	var got []string
	for _, r := range sunk(t, file) {
		got = append(got, fmt.Sprint(r.Kind, " ", r.Host, " ", r.Reason))
	}
	want := "dns first.site.example listed, tls www.site.example listed, dropped  , dns last.site.example listed"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("the file has\n%s\nwant\n%s", s, want)
	}
}
