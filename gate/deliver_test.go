package gate

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// newTestLease is a lease without a cell, whose lines go nowhere.
func newTestLease() *lease {
	d := &Daemon{Metrics: NewMetrics(), Log: slog.New(slog.DiscardHandler)}
	s := &server{Daemon: d, all: newJournal(allRecords), decisions: &decisionLog{w: io.Discard, log: d.Log}}
	l := &lease{id: "cell-1", server: s, journal: newJournal(runRecords), ledger: account.NewLedger("strict", "sha256:00")}
	l.Run, l.Lease.Policy = "01JZ", "strict"
	l.sieve.put = l.putShared
	return l
}

// decisions are those of one batch of queries.
func decisions(hosts []string, n int) []account.Record {
	all, now := make([]account.Record, n), time.Now()
	for i := range all {
		all[i] = decision()
		all[i].Time, all[i].Host = now, hosts[i%len(hosts)]
	}
	return all
}

// The way of a decision to receipt, metrics, log and streams allocates nothing,
// once its host has a row and the journals are full.
func TestDeliverAllocations(t *testing.T) {
	l, records := newTestLease(), decisions([]string{"a.npmjs.org", "b.npmjs.org"}, 32)
	deliver := func() {
		if err := l.deliver(records); err != nil {
			t.Fatal(err)
		}
	}
	for range allRecords/len(records) + 1 {
		deliver()
	}
	if n := testing.AllocsPerRun(100, deliver); n != 0 {
		t.Errorf("%v allocations for %d decisions, want none", n, len(records))
	}
}

// The lines of a batch are those that their records have one by one.
func TestLinesOfBatch(t *testing.T) {
	records := decisions([]string{"a.npmjs.org", `b\000.example`}, 6)
	records[2].Cell = "cell-2"
	records[3].Time = records[3].Time.Add(time.Second)
	records[4].Digest = ""
	records[5].Verdict, records[5].Count = firewall.Deny, 3
	var head batchHead
	var got []byte
	want := ""
	for i := range records {
		got = head.appendLine(got, &records[i])
		want += slogLine(t, records[i].Time, records[i])
	}
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// BenchmarkDeliver delivers batches of 32 decisions about 2,000 hosts.
func BenchmarkDeliver(b *testing.B) {
	hosts := make([]string, 2000)
	for i := range hosts {
		hosts[i] = fmt.Sprintf("l%d.zone%02d.example", i, i%14)
	}
	l, records := newTestLease(), decisions(hosts, 32)
	b.ReportAllocs()
	for at := 0; b.Loop(); at += len(records) {
		for i := range records {
			records[i].Host = hosts[(at+i)%len(hosts)]
		}
		if err := l.deliver(records); err != nil {
			b.Fatal(err)
		}
	}
}
