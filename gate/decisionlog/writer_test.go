package decisionlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

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
func TestWriter(t *testing.T) {
	var w fickle
	d := NewWriter(&w, slog.New(slog.DiscardHandler))
	add := func(from, to int) {
		for i := from; i < to; i++ {
			d.Add(account.Record{Kind: account.KindDNS, Host: fmt.Sprint(i)})
		}
	}
	add(0, 10)
	if w.writes != 0 {
		t.Errorf("%d writes before the flush", w.writes)
	}
	for range 2 {
		if err := d.Flush(); err != nil || w.writes != 1 {
			t.Errorf("flush: %v, %d writes", err, w.writes)
		}
	}
	w.fail = true
	add(10, 20)
	for range 3 {
		if d.Flush() == nil {
			t.Error("a flush that failed returned no error")
		}
	}
	if d.Ready() || w.writes != 2 {
		t.Errorf("ready, or %d writes though it has just been tried", w.writes)
	}
	add(20, 30)
	w.fail = false
	time.Sleep(RetryAfter)
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, host := range hostsIn(w.b.String()) {
		if host != fmt.Sprint(i) {
			t.Fatalf("line %d is of %q", i, host)
		}
	}
	if n := len(hostsIn(w.b.String())); n != 30 || !d.Ready() || d.faults.Load() != 1 {
		t.Errorf("%d lines of 30, %d faults", n, d.faults.Load())
	}
}

// What waits for a writer that fails is bounded, denials do not take the room of
// allowances, and what is beyond is counted.
func TestWriterIsBounded(t *testing.T) {
	var own bytes.Buffer
	w := fickle{fail: true}
	d := NewWriter(&w, slog.New(slog.NewTextHandler(&own, nil)))
	long := strings.Repeat("x", 16<<10)
	const added = 3 * maxUnwritten / (16 << 10)
	for i, verdict := range []firewall.Verdict{firewall.Deny, firewall.Allow} {
		for range added {
			d.Add(account.Record{Verdict: verdict, Detail: long})
		}
		if n, room := len(d.lines), (i+1)*maxUnwritten/2; n > room+32<<10 || n < room {
			t.Errorf("%d bytes wait, %s", n, verdict)
		}
	}
	if d.Add(account.Record{Verdict: firewall.Deny, Reason: firewall.ReasonLog, Count: 3}) {
		t.Error("a denial for want of the log waits for it")
	}
	w.fail = false
	time.Sleep(RetryAfter)
	if err := d.Flush(); err != nil {
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
func TestWriterOfMany(t *testing.T) {
	var w fickle
	d := NewWriter(&w, slog.New(slog.DiscardHandler))
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for k := range 200 {
				host := fmt.Sprintf("host-%d-%d", i, k)
				d.Add(account.Record{Host: host})
				if err := d.Flush(); err != nil {
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
	d := NewWriter(io.Discard, slog.New(slog.DiscardHandler))
	two := []account.Record{decision(), decision()}
	n := testing.AllocsPerRun(1000, func() {
		d.Add(two...)
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a line", n)
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
func TestWriterHangs(t *testing.T) {
	w := &failing{free: make(chan struct{})}
	d := NewWriter(w, slog.New(slog.DiscardHandler))
	d.Add(account.Record{Verdict: firewall.Allow})
	if d.Flush() == nil || d.Ready() {
		t.Fatal("control: it did not fail")
	}
	for end := time.Now().Add(10 * time.Second); w.tries.Load() < 2; time.Sleep(time.Millisecond) {
		if d.Ready() || time.Now().After(end) {
			t.Fatal("ready, or not tried again")
		}
	}
	if d.Ready() {
		t.Error("ready while it hangs")
	}
	close(w.free)
	for end := time.Now().Add(10 * time.Second); !d.Ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not ready although it writes")
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
