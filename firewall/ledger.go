package firewall

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

// maxRows is the most distinct rows of one receipt. A run that asks for more
// names than this has its further decisions counted in Receipt.Overflow.
const maxRows = 4096

// maxChanges is the most changes of policy that one receipt lists.
const maxChanges = 64

// A Ledger counts the decision records of one run into its receipt. It is safe
// for concurrent use and its memory is bounded.
type Ledger struct {
	policy, digest string

	mu       sync.Mutex // guards what follows
	changes  []PolicyChange
	rows     map[rowKey]*sums
	overflow int64
}

type rowKey struct {
	host    string
	port    uint16
	kind    Kind
	verdict Verdict
	reason  Reason
}

type sums struct{ count, up, down int64 }

// NewLedger returns an empty ledger for a run under the named policy, whose
// digest it repeats in the receipt.
func NewLedger(policy, digest string) *Ledger {
	return &Ledger{policy: policy, digest: digest, rows: make(map[rowKey]*sums)}
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
	k, n := rowKey{r.Host, r.Port, r.Kind, r.Verdict, r.Reason}, max(r.Count, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.rows[k]
	if t == nil {
		if len(l.rows) >= maxRows {
			l.overflow += n
			return
		}
		k.host = strings.Clone(k.host) // it may be a part of a whole hello
		t = new(sums)
		l.rows[k] = t
	}
	t.count += n
	t.up += r.BytesUp
	t.down += r.BytesDown
}

// Receipt is what was counted so far, its rows sorted by host, port, kind,
// verdict and reason. Hosts is never nil.
func (l *Ledger) Receipt() Receipt {
	l.mu.Lock()
	r := Receipt{
		Policy: l.policy, Digest: l.digest, Changes: slices.Clone(l.changes), Overflow: l.overflow,
		Hosts: make([]ReceiptHost, 0, len(l.rows)),
	}
	for k, t := range l.rows {
		r.Hosts = append(r.Hosts, ReceiptHost{
			Host: k.host, Port: k.port, Kind: k.kind, Verdict: k.verdict, Reason: k.reason,
			Count: t.count, BytesUp: t.up, BytesDown: t.down,
		})
	}
	l.mu.Unlock()
	slices.SortFunc(r.Hosts, func(a, b ReceiptHost) int {
		return cmp.Or(
			cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Verdict, b.Verdict), cmp.Compare(a.Reason, b.Reason))
	})
	return r
}
