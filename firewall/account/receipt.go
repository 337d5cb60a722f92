package account

import (
	"slices"
	"time"

	"sallyport/firewall"
)

// A Receipt is all that one run reached and was refused, counted by host.
type Receipt struct {
	Policy string `json:"policy"`
	// Digest is the digest of the policy when the lease began; see Policy.Digest.
	Digest string `json:"digest"`
	// Changes are those of the policy during the lease, the oldest first.
	Changes []PolicyChange `json:"changes,omitempty"`
	Hosts   []ReceiptHost  `json:"hosts"`
	// Overflow counts the decisions that found no room for a row of their own, see
	// Quota; they are in the log all the same. OverflowSums sums them by verdict, so
	// that rows and sums have all that the run did. Receipts of before had no sums.
	Overflow     int64        `json:"overflow,omitempty"`
	OverflowSums []VerdictSum `json:"overflowSums,omitempty"`
}

// A VerdictSum is what decisions of one verdict come to.
type VerdictSum struct {
	Verdict   firewall.Verdict `json:"verdict"`
	Count     int64            `json:"count"`
	BytesUp   int64            `json:"bytesUp"`
	BytesDown int64            `json:"bytesDown"`
}

// A PolicyChange is a reloaded allowlist that changed what the policy of a lease
// says, or took the policy away.
type PolicyChange struct {
	Time       time.Time `json:"time"`
	Generation uint64    `json:"generation"` // of the allowlist
	// Digest is that of the policy from then on; it is empty where the allowlist
	// no longer has the policy, so that everything is denied.
	Digest string `json:"digest"`
}

// A ReceiptHost is one row of a receipt: the decisions of one kind about one
// host and port that had the same outcome. What was refused half-way is in two: with
// its bytes where it was allowed, so that those of the allowed rows are what passed,
// and without any where it was refused.
type ReceiptHost struct {
	Host      string           `json:"host"`
	Port      uint16           `json:"port"`
	Kind      Kind             `json:"kind"`
	Verdict   firewall.Verdict `json:"verdict"`
	Reason    firewall.Reason  `json:"reason"`
	Count     int64            `json:"count"`
	BytesUp   int64            `json:"bytesUp"`
	BytesDown int64            `json:"bytesDown"`
}

// Rows are the rows of r, less the look-ups of hosts that were connected to.
func (r Receipt) Rows() []ReceiptHost {
	connected := make(map[string]bool)
	for _, h := range r.Hosts {
		connected[h.Host] = connected[h.Host] || h.Kind != KindDNS
	}
	return slices.DeleteFunc(slices.Clone(r.Hosts), func(h ReceiptHost) bool {
		return h.Kind == KindDNS && h.Verdict == firewall.Allow && connected[h.Host]
	})
}

// Sums are those of the decisions without a row. A receipt of before they were summed
// has their count only.
func (r Receipt) Sums() []VerdictSum {
	if len(r.OverflowSums) == 0 && r.Overflow > 0 {
		return []VerdictSum{{Count: r.Overflow}}
	}
	return r.OverflowSums
}
