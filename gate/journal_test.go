package gate

import (
	"fmt"
	"testing"

	"sallyport/firewall/account"
)

// Readers of a journal get every record once and in order, or learn how many
// they lost.
func TestJournal(t *testing.T) {
	j := newJournal(4)
	add := func(from, to int) {
		for i := from; i < to; i++ {
			j.add(account.Record{Host: fmt.Sprint(i)})
		}
	}
	buf := make([]account.Record, 3)
	want := func(b batch, missed uint64, hosts ...string) batch {
		t.Helper()
		if b.missed != missed || b.n != len(hosts) {
			t.Fatalf("batch %+v, want %d missed and %v", b, missed, hosts)
		}
		for i, h := range hosts {
			if buf[i].Host != h {
				t.Errorf("record %d is %s, want %s", i, buf[i].Host, h)
			}
		}
		return b
	}
	b := want(j.read(0, buf), 0)
	select {
	case <-b.changed:
		t.Error("changed before there was anything")
	default:
	}
	add(0, 4)
	<-b.changed
	b = want(j.read(0, buf), 0, "0", "1", "2")
	b = want(j.read(b.next, buf), 0, "3")
	b = want(j.read(b.next, buf), 0)
	add(4, 14)
	b = want(j.read(b.next, buf), 6, "10", "11", "12")
	want(j.read(2, buf), 8, "10", "11", "12") // another reader
	b = want(j.read(b.next, buf), 0, "13")
	waiting := want(j.read(b.next, buf), 0)
	j.end(true)
	j.end(false)
	<-waiting.changed
	if b = want(j.read(b.next, buf), 0); !b.over || !b.complete {
		t.Errorf("batch %+v, want the end", b)
	}
}
