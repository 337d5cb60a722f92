package account

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"unsafe"

	"sallyport/firewall"
)

func TestLedger(t *testing.T) {
	l := NewLedger("strict", "sha256:abc")
	if r := l.Receipt(); r.Hosts == nil || len(r.Hosts) != 0 || r.Policy != "strict" || r.Digest != "sha256:abc" {
		t.Errorf("empty receipt %+v", r)
	}
	for _, r := range []Record{
		{Host: "b.example", Port: 443, Kind: KindTLS, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 10, BytesDown: 100},
		{Host: "a.example", Port: 443, Kind: KindTLS, Verdict: firewall.Deny, Reason: firewall.ReasonNotListed},
		{Host: "b.example", Port: 80, Kind: KindHTTP, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 1, BytesDown: 2},
		{Host: "b.example", Port: 443, Kind: KindTLS, Verdict: firewall.Deny, Reason: firewall.ReasonAddress},
		{Host: "b.example", Port: 443, Kind: KindDNS, Verdict: firewall.Allow, Reason: firewall.ReasonListed},
		{Host: "b.example", Port: 443, Kind: KindTLS, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 5, BytesDown: 50},
		{Host: "b.example", Port: 443, Kind: KindTLS, Verdict: firewall.Deny, Reason: firewall.ReasonBudget, Allowed: firewall.ReasonListed, BytesUp: 7, BytesDown: 70},
		{Host: "c.example", Port: 80, Kind: KindHTTP, Verdict: firewall.Deny, Reason: firewall.ReasonBadRequest, Allowed: firewall.ReasonOpen, BytesUp: 3},
	} {
		l.Add(r)
	}
	want := []ReceiptHost{
		{"a.example", 443, KindTLS, firewall.Deny, firewall.ReasonNotListed, 1, 0, 0},
		{"b.example", 80, KindHTTP, firewall.Allow, firewall.ReasonListed, 1, 1, 2},
		{"b.example", 443, KindDNS, firewall.Allow, firewall.ReasonListed, 1, 0, 0},
		{"b.example", 443, KindTLS, firewall.Allow, firewall.ReasonListed, 3, 22, 220},
		{"b.example", 443, KindTLS, firewall.Deny, firewall.ReasonAddress, 1, 0, 0},
		{"b.example", 443, KindTLS, firewall.Deny, firewall.ReasonBudget, 1, 0, 0},
		{"c.example", 80, KindHTTP, firewall.Allow, firewall.ReasonOpen, 1, 3, 0},
		{"c.example", 80, KindHTTP, firewall.Deny, firewall.ReasonBadRequest, 1, 0, 0},
	}
	if got := l.Receipt(); !reflect.DeepEqual(got.Hosts, want) || got.Overflow != 0 {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

// A receipt has the digest of its beginning and the changes since, within a bound.
func TestLedgerChanges(t *testing.T) {
	l := NewLedger("strict", "sha256:a")
	if r := l.Receipt(); r.Changes != nil {
		t.Errorf("changes %+v", r.Changes)
	}
	for g := range uint64(maxChanges + 5) {
		l.Changed(PolicyChange{Generation: g, Digest: "sha256:b"})
	}
	r := l.Receipt()
	if r.Digest != "sha256:a" || len(r.Changes) != maxChanges {
		t.Fatalf("digest %s, %d changes", r.Digest, len(r.Changes))
	}
	if first, last := r.Changes[0], r.Changes[maxChanges-1]; first.Generation != 0 || last.Generation != maxChanges+4 {
		t.Errorf("from %+v to %+v", first, last)
	}
}

func TestLedgerIsBounded(t *testing.T) {
	l := NewLedger("open", "")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range maxRows + 500 {
				l.Add(Record{Host: fmt.Sprintf("h%d.example", i), Kind: KindDNS, Verdict: firewall.Deny, BytesUp: 1})
				if i%1000 == w {
					l.Receipt()
				}
			}
		})
	}
	wg.Wait()
	r := l.Receipt()
	var counted int64
	for _, h := range r.Hosts {
		counted += h.Count
	}
	if len(r.Hosts) != maxRows || counted+r.Overflow != 4*(maxRows+500) || r.Overflow == 0 {
		t.Errorf("%d rows, %d counted, %d over; want %d rows and %d in all", len(r.Hosts), counted, r.Overflow, maxRows, 4*(maxRows+500))
	}
	// A row that is there already is counted on.
	before := r.Hosts[0]
	l.Add(Record{Host: before.Host, Kind: KindDNS, Verdict: firewall.Deny, BytesUp: 1})
	if after := l.Receipt().Hosts[0]; after.Count != before.Count+1 || after.BytesUp != before.BytesUp+1 {
		t.Errorf("row %+v became %+v", before, after)
	}
}

// Names that a sandbox makes up have a part of the rows only, refused or looked up,
// and what it reaches afterwards has the rest. What has no row is in the sums.
func TestLedgerSharesRows(t *testing.T) {
	refused := Record{Kind: KindDNS, Verdict: firewall.Deny, Reason: firewall.ReasonNotListed}
	lookedUp := Record{Kind: KindDNS, Verdict: firewall.Allow, Reason: firewall.ReasonListed}
	reached := Record{Kind: KindTLS, Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 3, BytesDown: 2}
	cut := Record{Kind: KindTLS, Port: 443, Verdict: firewall.Deny, Reason: firewall.ReasonBudget, BytesUp: 5}
	l := NewLedger("open", "")
	names := 0
	add := func(n int, r Record) {
		for range n {
			names++
			r.Host = fmt.Sprintf("h%d.example", names)
			l.Add(r)
		}
	}
	rows := func() map[Record]int {
		n := make(map[Record]int)
		for _, h := range l.Receipt().Hosts {
			n[Record{Kind: h.Kind, Port: h.Port, Verdict: h.Verdict, Reason: h.Reason, BytesUp: h.BytesUp, BytesDown: h.BytesDown}]++
		}
		return n
	}
	add(2*maxRows, refused)
	add(2*maxRows, lookedUp)
	if got, want := rows(), map[Record]int{refused: maxRows / 2, lookedUp: maxRows / 4}; !reflect.DeepEqual(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	add(maxRows/8, reached)
	add(maxRows/8, cut)
	want := map[Record]int{refused: maxRows / 2, lookedUp: maxRows / 4, reached: maxRows / 8, cut: maxRows / 8}
	if got := rows(); !reflect.DeepEqual(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	add(10, reached)
	add(10, cut)
	l.Add(Record{Host: "", Kind: KindTLS, Verdict: firewall.Deny, Reason: firewall.ReasonLimit, Count: 1000})
	r := l.Receipt()
	sums := []VerdictSum{
		{Verdict: firewall.Allow, Count: 7*maxRows/4 + 10, BytesUp: 30, BytesDown: 20},
		{Verdict: firewall.Deny, Count: 3*maxRows/2 + 1010, BytesUp: 50},
	}
	if !reflect.DeepEqual(r.OverflowSums, sums) || r.Overflow != sums[0].Count+sums[1].Count || !reflect.DeepEqual(rows(), want) {
		t.Errorf("sums %+v, %d over, rows %v; want %+v", r.OverflowSums, r.Overflow, rows(), sums)
	}
	if n := NewLedger("open", "").Receipt(); n.OverflowSums != nil || n.Overflow != 0 {
		t.Errorf("an empty receipt has %+v", n)
	}
}

// Of the zero Quota nobody gets a row.
func TestQuotaZero(t *testing.T) {
	if new(Quota).Use(&Record{Kind: KindTLS, Verdict: firewall.Allow}) {
		t.Error("a row")
	}
}

// What AddAll leaves in the records stays what it is when the caller uses the
// text again, for hosts that have a row and for those that found no room.
func TestLedgerAddAll(t *testing.T) {
	l := NewLedger("open", "")
	var kept []Record
	buf := make([]byte, 0, 64)
	for i := range maxRows + 100 {
		buf = fmt.Appendf(buf[:0], "h%d.example", i/2)
		one := []Record{
			{Host: unsafe.String(&buf[0], len(buf)), Kind: KindDNS, Verdict: firewall.Deny, Reason: firewall.ReasonNotListed, Port: uint16(i % 2)},
			{Host: "same.example", Kind: KindDNS, Verdict: firewall.Allow, Reason: firewall.ReasonListed, Count: 3},
		}
		l.AddAll(one)
		kept = append(kept, one...)
	}
	for i := range maxRows + 100 {
		if a, b := kept[2*i].Host, kept[2*i+1].Host; a != fmt.Sprintf("h%d.example", i/2) || b != "same.example" {
			t.Fatalf("hosts %d are %q and %q", i, a, b)
		}
	}
	r := l.Receipt()
	if len(r.Hosts) != maxRows/2+1 || r.Overflow != maxRows/2+100 {
		t.Errorf("%d rows, %d over; want %d and %d", len(r.Hosts), r.Overflow, maxRows/2+1, maxRows/2+100)
	}
	seen := make(map[ReceiptHost]bool)
	for _, h := range r.Hosts {
		want := int64(1)
		if h.Host == "same.example" {
			want = 3 * (maxRows + 100)
		}
		if h.Count != want || seen[h] {
			t.Errorf("row %+v", h)
		}
		seen[h] = true
	}
}

// Known hosts are counted without an allocation.
func TestLedgerAllocations(t *testing.T) {
	l := NewLedger("open", "")
	records := make([]Record, 2)
	n := testing.AllocsPerRun(100, func() {
		records[0] = Record{Host: "a.example", Kind: KindDNS, Verdict: firewall.Deny, Reason: firewall.ReasonNotListed}
		records[1] = Record{Host: "b.example", Kind: KindTLS, Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed}
		l.AddAll(records)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}
