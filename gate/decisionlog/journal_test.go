package decisionlog

import (
	"fmt"
	"testing"

	"sallyport/firewall/account"
)

// Readers of a journal get every record once and in order, or learn how many
// they lost.
func TestJournal(t *testing.T) {
	j := NewJournal(4)
	add := func(from, to int) {
		for i := from; i < to; i++ {
			j.Add(account.Record{Host: fmt.Sprint(i)})
		}
	}
	buf := make([]account.Record, 3)
	want := func(b Batch, missed uint64, hosts ...string) Batch {
		t.Helper()
		if b.Missed != missed || b.N != len(hosts) {
			t.Fatalf("batch %+v, want %d missed and %v", b, missed, hosts)
		}
		for i, h := range hosts {
			if buf[i].Host != h {
				t.Errorf("record %d is %s, want %s", i, buf[i].Host, h)
			}
		}
		return b
	}
	b := want(j.Read(0, buf), 0)
	select {
	case <-b.Changed:
		t.Error("changed before there was anything")
	default:
	}
	add(0, 4)
	<-b.Changed
	b = want(j.Read(0, buf), 0, "0", "1", "2")
	b = want(j.Read(b.Next, buf), 0, "3")
	b = want(j.Read(b.Next, buf), 0)
	add(4, 14)
	b = want(j.Read(b.Next, buf), 6, "10", "11", "12")
	want(j.Read(2, buf), 8, "10", "11", "12") // another reader
	b = want(j.Read(b.Next, buf), 0, "13")
	waiting := want(j.Read(b.Next, buf), 0)
	j.End(true)
	j.End(false)
	<-waiting.Changed
	if b = want(j.Read(b.Next, buf), 0); !b.Over || !b.Complete {
		t.Errorf("batch %+v, want the end", b)
	}
}
