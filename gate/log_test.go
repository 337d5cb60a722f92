package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// slogLine is the line of r that log/slog writes.
func slogLine(t testing.TB, now time.Time, r account.Record) string {
	t.Helper()
	var b bytes.Buffer
	entry := slog.NewRecord(now, levelDecision, "decision", 0)
	entry.AddAttrs(r.LogAttrs()...)
	if err := slog.NewJSONHandler(&b, nil).Handle(context.Background(), entry); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FuzzLine wants the bytes that log/slog writes, whatever the record holds: of the
// first of a batch, and of those that take over its head or must not.
//
// probe: F9
// oracle: the line of the log, decoded by another library
func FuzzLine(f *testing.F) {
	f.Add("run-1", "allowed.example", "A", ".allowed.example", 3, uint16(0), []byte{127, 0, 0, 1}, uint16(53), int64(0))
	f.Add("", "", "", "", 0, uint16(443), []byte(nil), uint16(0), int64(-1))
	f.Add("r", `a\000.example`, "quote \" and <html> & \x00\x1b[31m\n\t\b\f", "\u2028\u202e\xff", -7, uint16(65535),
		bytes.Repeat([]byte{0xfe}, 16), uint16(1), int64(1<<62))
	f.Fuzz(func(t *testing.T, run, host, detail, rule string, line int, port uint16, addr []byte, clientPort uint16, up int64) {
		ip, _ := netip.AddrFromSlice(addr)
		r := account.Record{
			Run: run, Cell: "cell-1", Policy: "strict", Digest: "sha256:00", Kind: account.KindDNS, Host: host, Port: port,
			Verdict: firewall.Deny, Reason: firewall.ReasonNotListed, Allowed: firewall.Reason(rule), Rule: rule, Line: line, Detail: detail,
			BytesUp: up, BytesDown: ^up, DurationMS: up / 3,
		}
		if ip.IsValid() {
			r.Client, r.Upstream = netip.AddrPortFrom(ip, clientPort), netip.AddrPortFrom(ip.Unmap(), port)
		}
		r.Time = time.Unix(up%4e9, int64(line)%1e9)
		if y := r.Time.Year(); y < 0 || y > 9999 {
			return
		}
		sameRecord(t, r)
		next, other := r, r
		next.Host, next.Rule, next.Detail, next.Line, next.Client = detail, run, host, -line, r.Upstream
		other.Run, other.Cell, other.Policy, other.Digest = host, rule, detail, run
		sameBatch(t, r, next, other, r)
	})
}

// sameBatch wants the lines of a batch of queries to be those that log/slog writes
// of them one by one.
func sameBatch(t *testing.T, records ...account.Record) {
	t.Helper()
	var head batchHead
	var lines []byte
	for i := range records {
		start := len(lines)
		lines = head.appendLine(lines, &records[i])
		sameLine(t, string(lines[start:]), slogLine(t, records[i].Time, records[i]))
	}
}

// sameLine wants equal bytes, but for two control characters that have a second
// escaped form.
func sameLine(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	var one, two any
	if err := errors.Join(json.Unmarshal([]byte(got), &one), json.Unmarshal([]byte(want), &two)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(one, two) || !strings.Contains(want, `\u000`) || strings.Count(got, "\n") != 1 {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// sameRecord wants that the line of r in the file of decisions says what r as JSON
// does.
func sameRecord(t *testing.T, r account.Record) {
	t.Helper()
	line, want, got, plain := appendRecord(nil, &r), any(nil), any(nil), []byte(nil)
	plain, err := json.Marshal(r)
	if err = errors.Join(err, json.Unmarshal(plain, &want), json.Unmarshal(line, &got)); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if !reflect.DeepEqual(got, want) || bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Errorf("got  %s\nwant %s", line, plain)
	}
}

// A zone in an address is text like any other.
func TestLineOfZone(t *testing.T) {
	r := account.Record{Time: time.Now(), Kind: account.KindDNS, Client: netip.MustParseAddrPort(`[fe80::1%a"b]:53`)}
	sameBatch(t, r, r)
	sameRecord(t, r)
}

// A fickle writer fails when it is told to, after a part of what it got.
type fickle struct {
	mu     sync.Mutex // guards what follows
	b      bytes.Buffer
	fail   bool
	writes int
}

func (f *fickle) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if f.fail {
		n, _ := f.b.Write(p[:min(7, len(p))])
		return n, errors.New("no space left")
	}
	return f.b.Write(p)
}

func hostsIn(log string) (list []string) {
	for line := range strings.Lines(log) {
		_, after, _ := strings.Cut(line, `"host":"`)
		host, _, _ := strings.Cut(after, `"`)
		list = append(list, host)
	}
	return list
}

// Lines are written in one piece, in order; what a writer refuses is said, kept
// and written once it can be.
func TestDecisionLog(t *testing.T) {
	var w fickle
	d := &decisionLog{w: &w, log: slog.New(slog.DiscardHandler)}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			d.add(account.Record{Kind: account.KindDNS, Host: fmt.Sprint(i)})
		}
	}
	add(0, 10)
	if w.writes != 0 {
		t.Errorf("%d writes before the flush", w.writes)
	}
	for range 2 {
		if err := d.flush(); err != nil || w.writes != 1 {
			t.Errorf("flush: %v, %d writes", err, w.writes)
		}
	}
	w.fail = true
	add(10, 20)
	for range 3 {
		if d.flush() == nil {
			t.Error("a flush that failed returned no error")
		}
	}
	if d.ready() || w.writes != 2 {
		t.Errorf("ready, or %d writes though it has just been tried", w.writes)
	}
	add(20, 30)
	w.fail = false
	time.Sleep(retryAfter)
	if err := d.flush(); err != nil {
		t.Fatal(err)
	}
	for i, host := range hostsIn(w.b.String()) {
		if host != fmt.Sprint(i) {
			t.Fatalf("line %d is of %q", i, host)
		}
	}
	if n := len(hostsIn(w.b.String())); n != 30 || !d.ready() || d.faults.Load() != 1 {
		t.Errorf("%d lines of 30, %d faults", n, d.faults.Load())
	}
}

// What waits for a writer that fails is bounded, denials do not take the room of
// allowances, and what is beyond is counted.
func TestDecisionLogIsBounded(t *testing.T) {
	var own bytes.Buffer
	w := fickle{fail: true}
	d := &decisionLog{w: &w, log: slog.New(slog.NewTextHandler(&own, nil))}
	long := strings.Repeat("x", 16<<10)
	const added = 3 * maxUnwritten / (16 << 10)
	for i, verdict := range []firewall.Verdict{firewall.Deny, firewall.Allow} {
		for range added {
			d.add(account.Record{Verdict: verdict, Detail: long})
		}
		if n, room := len(d.lines), (i+1)*maxUnwritten/2; n > room+32<<10 || n < room {
			t.Errorf("%d bytes wait, %s", n, verdict)
		}
	}
	if d.add(account.Record{Verdict: firewall.Deny, Reason: firewall.ReasonLog, Count: 3}) {
		t.Error("a denial for want of the log waits for it")
	}
	w.fail = false
	time.Sleep(retryAfter)
	if err := d.flush(); err != nil {
		t.Fatal(err)
	}
	lines, lost := strings.Count(w.b.String(), "\n"), 0
	if _, after, ok := strings.Cut(own.String(), "denied=3 lost="); ok {
		fmt.Sscan(after, &lost)
	}
	if lost == 0 || lines+lost != 2*added {
		t.Errorf("%d lines and %d lost of %d: %s", lines, lost, 2*added, own.String())
	}
}

// A flush covers the lines of its caller, whoever writes them.
func TestDecisionLogOfMany(t *testing.T) {
	var w fickle
	d := &decisionLog{w: &w, log: slog.New(slog.DiscardHandler)}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for k := range 200 {
				host := fmt.Sprintf("host-%d-%d", i, k)
				d.add(account.Record{Host: host})
				if err := d.flush(); err != nil {
					t.Error(err)
				}
				w.mu.Lock()
				if !strings.Contains(w.b.String()[max(0, w.b.Len()-64<<10):], `"`+host+`"`) {
					t.Errorf("%s is not written", host)
				}
				w.mu.Unlock()
			}
		})
	}
	group.Wait()
	if n := len(hostsIn(w.b.String())); n != 1600 {
		t.Errorf("%d lines", n)
	}
}

// A line allocates nothing.
func TestLineAllocations(t *testing.T) {
	d := &decisionLog{w: io.Discard, log: slog.New(slog.DiscardHandler)}
	two := []account.Record{decision(), decision()}
	n := testing.AllocsPerRun(1000, func() {
		d.add(two...)
		if err := d.flush(); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a line", n)
	}
}

func decision() account.Record {
	return account.Record{
		Time: time.Now(), Run: "01JZ", Cell: "cell-1", Policy: "strict", Digest: "sha256:" + strings.Repeat("0", 64),
		Kind: account.KindDNS, Host: "registry.npmjs.org", Verdict: firewall.Allow, Reason: firewall.ReasonListed,
		Rule: ".npmjs.org", Line: 7, Detail: "A", Client: netip.MustParseAddrPort("172.30.0.3:40000"),
	}
}

func BenchmarkLine(b *testing.B) {
	r := decision()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var head batchHead // none to take over
		buf = head.appendLine(buf[:0], &r)
	}
}

// A failing is a writer that fails at first and then hangs until it is let go.
type failing struct {
	tries atomic.Int64
	free  chan struct{}
}

func (f *failing) Write(p []byte) (int, error) {
	if f.tries.Add(1) == 1 {
		return 0, errors.New("no space left on device")
	}
	<-f.free
	return len(p), nil
}

// Whether a log that failed can be written is known without waiting for a try
// that hangs.
func TestLogHangs(t *testing.T) {
	w := &failing{free: make(chan struct{})}
	d := &decisionLog{w: w, log: slog.New(slog.DiscardHandler)}
	d.add(account.Record{Verdict: firewall.Allow})
	if d.flush() == nil || d.ready() {
		t.Fatal("control: it did not fail")
	}
	for end := time.Now().Add(10 * time.Second); w.tries.Load() < 2; time.Sleep(time.Millisecond) {
		if d.ready() || time.Now().After(end) {
			t.Fatal("ready, or not tried again")
		}
	}
	if d.ready() {
		t.Error("ready while it hangs")
	}
	close(w.free)
	for end := time.Now().Add(10 * time.Second); !d.ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not ready although it writes")
		}
	}
	if err := d.close(); err != nil {
		t.Error(err)
	}
}

// Lines that several write to a pipe at a time arrive whole, also those that do not
// fit into it and so wait for its reader. Whoever made the pipe finds it as it was.
func TestLogWriter(t *testing.T) {
	const writers, lines = 8, 40
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// As standard output is: a descriptor that waits.
	fd, err := unix.Dup(int(out.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	out = os.NewFile(uintptr(fd), "out")
	w := LogWriter(out)
	if _, ok := w.(*pipe); !ok {
		t.Fatalf("a pipe is written by %T", w)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x of the pipe, %v", flags, err)
	}
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for n := range lines {
				line := strings.Repeat(string(rune('a'+i)), 1+n*1000) + "\n"
				if wrote, err := w.Write([]byte(line)); err != nil || wrote != len(line) {
					t.Errorf("%d of %d bytes written, %v", wrote, len(line), err)
				}
			}
		})
	}
	go func() {
		writing.Wait()
		out.Close()
		unix.Close(w.(*pipe).quick)
	}()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	next := make(map[byte]int)
	for line := range strings.Lines(string(all)) {
		n := next[line[0]]
		if want := strings.Repeat(line[:1], 1+n*1000) + "\n"; line != want {
			t.Fatalf("line %d of %q has %d bytes and %q at its end", n, line[0], len(line), line[max(0, len(line)-5):])
		}
		next[line[0]]++
	}
	for i := range writers {
		if n := next[byte('a'+i)]; n != lines {
			t.Errorf("%d lines of writer %d, want %d", n, i, lines)
		}
	}
}

// A pipe that nobody reads is an error, and what is no pipe is written as it is: a
// call for a file may wait for its disk, and the runtime must know.
func TestLogWriterFails(t *testing.T) {
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w := LogWriter(out)
	defer unix.Close(w.(*pipe).quick)
	if n, err := w.Write([]byte("control\n")); n != 8 || err != nil {
		t.Errorf("control: %d bytes, %v", n, err)
	}
	r.Close()
	if n, err := w.Write([]byte("lost\n")); n != 0 || !errors.Is(err, unix.EPIPE) {
		t.Errorf("%d bytes written to nobody, %v", n, err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, out := range []io.Writer{file, new(bytes.Buffer)} {
		if w := LogWriter(out); w != out {
			t.Errorf("%T is written by %T", out, w)
		}
	}
}
