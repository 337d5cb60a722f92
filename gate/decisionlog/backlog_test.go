package decisionlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// TestBacklogLosesNothing writes what waits in pieces of any length while more comes: every
// line is written once, whole and in order, and an empty backlog keeps little memory.
func TestBacklogLosesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var b backlog
	var got bytes.Buffer
	added := 0
	for range 2000 {
		for range random.IntN(20) {
			b.add([]account.Record{{Host: fmt.Sprint(added), Detail: strings.Repeat("x", random.IntN(2000)), Verdict: firewall.Allow}})
			added++
		}
		lines, _, _ := b.waiting()
		n := random.IntN(len(lines) + 1)
		b.add([]account.Record{{Host: fmt.Sprint(added)}}) // while the piece is being written
		added++
		got.Write(lines[:n])
		b.written(n, 0, 0)
	}
	lines, _, _ := b.waiting()
	if n := bytes.Count(lines, []byte("\n")) + bytes.Count(got.Bytes(), []byte("\n")); n != added {
		t.Errorf("%d lines of %d", n, added)
	}
	got.Write(lines)
	b.written(len(lines), 0, 0)
	for i, host := range hostsIn(got.String()) {
		if host != fmt.Sprint(i) {
			t.Fatalf("line %d is of %q", i, host)
		}
	}
	if b.count != 0 || cap(b.lines) > maxKept {
		t.Errorf("%d lines are counted, %d bytes are kept", b.count, cap(b.lines))
	}
}

// TestBacklogGoesDownAndUp: down, what is denied for want of the log is counted; up again
// only once nothing waits and all that was counted has been told of.
func TestBacklogGoesDownAndUp(t *testing.T) {
	var b backlog
	denied := account.Record{Verdict: firewall.Deny, Reason: firewall.ReasonLog, Count: 3}
	if waits, _ := b.add([]account.Record{denied}); !waits {
		t.Error("control: a denial has no line while the log can be written")
	}
	if !b.fail() || b.fail() || b.Faults() != 2 {
		t.Errorf("two failures, %d of them counted", b.Faults())
	}
	if waits, _ := b.add([]account.Record{denied}); waits {
		t.Error("a denial for want of the log waits for it")
	}
	lines, refused, lost := b.waiting()
	if refused != 3 || lost != 0 {
		t.Errorf("%d refused, %d lost", refused, lost)
	}
	b.written(len(lines), 0, 0)
	if empty, _ := b.recoverEmpty(); empty || !b.down.Load() {
		t.Error("up, although nobody was told of the denials")
	}
	b.written(0, refused, lost)
	if empty, was := b.recoverEmpty(); !empty || !was || b.down.Load() {
		t.Error("not up again")
	}
}
