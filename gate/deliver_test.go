package gate

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/decisionlog"
	"sallyport/gate/metrics"
)

// newTestLease is a lease without a cell, whose lines go nowhere.
func newTestLease() *lease {
	d := &Daemon{Metrics: metrics.New(), Log: slog.New(slog.DiscardHandler)}
	s := &server{Daemon: d, all: decisionlog.NewJournal(allRecords), decisions: decisionlog.NewWriter(io.Discard, d.Log)}
	l := &lease{id: "cell-1", server: s, journal: decisionlog.NewJournal(runRecords), ledger: account.NewLedger("strict", "sha256:00")}
	l.Run, l.Lease.Policy = "01JZ", "strict"
	l.limit.Put = l.putShared
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

func decision() account.Record {
	return account.Record{
		Time: time.Now(), Run: "01JZ", Cell: "cell-1", Policy: "strict", Digest: "sha256:00",
		Kind: account.KindDNS, Host: "registry.npmjs.org", Verdict: firewall.Allow, Reason: firewall.ReasonListed,
		Rule: ".npmjs.org", Line: 7, Detail: "A", Client: netip.MustParseAddrPort("172.30.0.3:40000"),
	}
}
