package account

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"sallyport/firewall"
)

// maxRows is the most distinct rows of one receipt. The decisions of a run that
// asks for more names than this are summed in Receipt.OverflowSums.
const maxRows = 4096

// maxChanges is the most changes of policy that one receipt lists.
const maxChanges = 64

// A Ledger counts the decision records of one run into its receipt. It is safe
// for concurrent use and its memory is bounded.
//
// A row is made for each host that a sandbox thinks of, so that rows are small:
// hosts are stored in pieces that many share, and what follows from the decision,
// of which there are few, once.
type Ledger struct {
	policy, digest string

	mu       sync.Mutex // guards what follows
	changes  []PolicyChange
	first    map[string]*count // of each host
	outcomes []outcome
	unused   []count         // not used yet
	text     strings.Builder // of hosts
	quota    Quota           // of rows
	overflow []VerdictSum
}

// A count is a row: of the decisions with one outcome about one host and port.
type count struct {
	host        string
	next        *count // of the same host, with another port or outcome
	port        uint16
	outcome     uint16 // index into Ledger.outcomes
	n, up, down int64
}

// An outcome is what the gate may say of a host and port.
type outcome struct {
	kind    Kind
	verdict firewall.Verdict
	reason  firewall.Reason
}

// Rows and hosts are allocated this many rows and bytes at a time.
const (
	rowsAtOnce = 32
	textAtOnce = 1 << 10
)

// NewLedger returns an empty ledger for a run under the named policy, whose
// digest it repeats in the receipt.
func NewLedger(policy, digest string) *Ledger {
	return &Ledger{policy: policy, digest: digest, first: make(map[string]*count), quota: Quota{Max: maxRows}}
}

// Changed notes that the policy has changed. Of more changes than maxChanges the
// latest stands for those that have no room.
func (l *Ledger) Changed(c PolicyChange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.changes) < maxChanges {
		l.changes = append(l.changes, c)
	} else {
		l.changes[maxChanges-1] = c
	}
}

// Add counts r.
func (l *Ledger) Add(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(&r)
}

// AddAll counts the records, and replaces their hosts by copies of its own, so
// that a caller may keep them.
func (l *Ledger) AddAll(records []Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range records {
		r := &records[i]
		if row := l.add(r); row != nil {
			r.Host = row.host
		} else {
			r.Host = strings.Clone(r.Host)
		}
	}
}

// add counts r and returns its row, nil where there is no room for one. l.mu is
// held.
func (l *Ledger) add(r *Record) *count {
	n, up, down := max(r.Count, 1), r.BytesUp, r.BytesDown
	if r.Allowed != "" {
		l.addRow(r, outcome{r.Kind, firewall.Allow, r.Allowed}, n, up, down)
		up, down = 0, 0
	}
	return l.addRow(r, outcome{r.Kind, r.Verdict, r.Reason}, n, up, down)
}

// addRow counts n decisions with the outcome o, and what passed by them. l.mu is held.
func (l *Ledger) addRow(r *Record, o outcome, n, up, down int64) *count {
	index := l.outcome(o)
	first := l.first[r.Host]
	t := first
	for t != nil && (t.outcome != index || t.port != r.Port) {
		t = t.next
	}
	if t == nil {
		if !l.quota.Use(r) {
			l.addOver(VerdictSum{o.verdict, n, up, down})
			return nil
		}
		t = l.newRow(r.Host, first)
		t.outcome, t.port = index, r.Port
	}
	t.n += n
	t.up += up
	t.down += down
	return t
}

// addOver sums decisions that have no row. l.mu is held.
func (l *Ledger) addOver(more VerdictSum) {
	i := slices.IndexFunc(l.overflow, func(s VerdictSum) bool { return s.Verdict == more.Verdict })
	if i < 0 {
		l.overflow = append(l.overflow, more)
		return
	}
	s := &l.overflow[i]
	s.Count += more.Count
	s.BytesUp += more.BytesUp
	s.BytesDown += more.BytesDown
}

// outcome is the index of what the gate said. There are no more of them than the code
// has reasons. l.mu is held.
func (l *Ledger) outcome(o outcome) uint16 {
	i := slices.Index(l.outcomes, o)
	if i < 0 {
		i = len(l.outcomes)
		l.outcomes = append(l.outcomes, o)
	}
	return uint16(i)
}

// newRow makes a row for a host, which first, if not nil, has already. l.mu is
// held.
func (l *Ledger) newRow(host string, first *count) *count {
	if len(l.unused) == 0 {
		l.unused = make([]count, rowsAtOnce)
	}
	t := &l.unused[0]
	l.unused = l.unused[1:]
	if first != nil {
		t.host, t.next, first.next = first.host, first.next, t
		return t
	}
	t.host = l.copyText(host)
	l.first[t.host] = t
	return t
}

// copyText copies a string, which may be a part of a whole hello. l.mu is held.
func (l *Ledger) copyText(s string) string {
	if l.text.Cap()-l.text.Len() < len(s) {
		l.text = strings.Builder{} // what was copied before stays where it is
		l.text.Grow(max(textAtOnce, len(s)))
	}
	at := l.text.Len()
	l.text.WriteString(s)
	return l.text.String()[at:]
}

// Receipt is what was counted so far, its rows sorted by host, port, kind,
// verdict and reason. Hosts is never nil.
func (l *Ledger) Receipt() Receipt {
	l.mu.Lock()
	r := Receipt{
		Policy: l.policy, Digest: l.digest, Changes: slices.Clone(l.changes), OverflowSums: slices.Clone(l.overflow),
		Hosts: make([]ReceiptHost, 0, l.quota.total()),
	}
	for _, s := range r.OverflowSums {
		r.Overflow += s.Count
	}
	for _, t := range l.first {
		for ; t != nil; t = t.next {
			o := &l.outcomes[t.outcome]
			r.Hosts = append(r.Hosts, ReceiptHost{
				Host: t.host, Port: t.port, Kind: o.kind, Verdict: o.verdict, Reason: o.reason,
				Count: t.n, BytesUp: t.up, BytesDown: t.down,
			})
		}
	}
	l.mu.Unlock()
	slices.SortFunc(r.OverflowSums, func(a, b VerdictSum) int { return cmp.Compare(a.Verdict, b.Verdict) })
	slices.SortFunc(r.Hosts, func(a, b ReceiptHost) int {
		return cmp.Or(
			cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.Reason, b.Reason))
	})
	return r
}
