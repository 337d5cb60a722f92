package review

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"sallyport/firewall/account"
)

// grownBytes is the least number of bytes that counts as grown traffic.
const grownBytes = 100_000

// Traffic is what a run had to do with one host and port.
type Traffic struct {
	Verdicts           []string // such as "allow (listed)", sorted
	BytesUp, BytesDown int64
}

// A ReceiptDiff is what two runs make different for one host and port.
type ReceiptDiff struct {
	Host string
	Port uint16 // 0 for look-ups alone
	// Was and Is are nil where that run had nothing to do with it.
	Was, Is *Traffic
	// GrewUp and GrewDown say that more passed by the factor that was asked for.
	GrewUp, GrewDown bool
}

// Changed reports whether both runs had to do with it and were told otherwise.
func (d ReceiptDiff) Changed() bool {
	return d.Was != nil && d.Is != nil && !slices.Equal(d.Was.Verdicts, d.Is.Verdicts)
}

// A SumDiff is what two runs make different in what had no row of its own. Was is nil
// where the earlier one had nothing of that verdict.
type SumDiff struct {
	Was *account.VerdictSum
	Is  account.VerdictSum
}

// DiffReceipts compares what two runs reached and were refused, by host and port, and
// returns what differs, sorted. Traffic that grew by the factor is told from 100 kB on.
func DiffReceipts(was, is account.Receipt, factor float64) []ReceiptDiff {
	before, after := trafficOf(was), trafficOf(is)
	both := maps.Clone(before)
	maps.Copy(both, after)
	var diffs []ReceiptDiff
	for _, at := range slices.SortedFunc(maps.Keys(both), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.port, b.port))
	}) {
		d := ReceiptDiff{Host: at.host, Port: at.port, Was: before[at], Is: after[at]}
		if d.Was != nil && d.Is != nil {
			d.GrewUp, d.GrewDown = grew(d.Was.BytesUp, d.Is.BytesUp, factor), grew(d.Was.BytesDown, d.Is.BytesDown, factor)
		}
		if d.Was == nil || d.Is == nil || d.Changed() || d.GrewUp || d.GrewDown {
			diffs = append(diffs, d)
		}
	}
	return diffs
}

// DiffSums is DiffReceipts for what had no row of its own.
func DiffSums(was, is account.Receipt, factor float64) []SumDiff {
	var diffs []SumDiff
	before := was.Sums()
	for _, now := range is.Sums() {
		i := slices.IndexFunc(before, func(s account.VerdictSum) bool { return s.Verdict == now.Verdict })
		switch {
		case i < 0:
			diffs = append(diffs, SumDiff{Is: now})
		case grew(before[i].BytesUp, now.BytesUp, factor) || grew(before[i].BytesDown, now.BytesDown, factor):
			diffs = append(diffs, SumDiff{&before[i], now})
		}
	}
	return diffs
}

// A target is what a receipt counts: a host and a port, 0 for look-ups alone.
type target struct {
	host string
	port uint16
}

// trafficOf gathers a receipt.
func trafficOf(r account.Receipt) map[target]*Traffic {
	all := make(map[target]*Traffic)
	for _, h := range r.Rows() {
		at := target{h.Host, h.Port}
		t := all[at]
		if t == nil {
			t = new(Traffic)
			all[at] = t
		}
		t.Verdicts = append(t.Verdicts, fmt.Sprintf("%s (%s)", h.Verdict, h.Reason))
		t.BytesUp += h.BytesUp
		t.BytesDown += h.BytesDown
	}
	for _, t := range all {
		slices.Sort(t.Verdicts)
		t.Verdicts = slices.Compact(t.Verdicts)
	}
	return all
}

func grew(was, is int64, factor float64) bool {
	return is >= grownBytes && float64(is) >= factor*float64(was)
}
