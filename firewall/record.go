package firewall

import (
	"net/netip"
	"time"
)

// Kind says which part of the gate made a decision.
type Kind string

// The kinds of decision.
const (
	KindDNS  Kind = "dns"  // a query to the DNS gate
	KindTLS  Kind = "tls"  // a connection to port 443, judged by its ClientHello
	KindHTTP Kind = "http" // one request on port 80
)

// A Record is one decision as it is logged, streamed and counted: one for each
// DNS query, each TLS connection and each HTTP request, but for those that a
// sandbox could cause without bound, of which one stands for many. Digest is that of
// the policy that Rule and Line are of: a connection may end after a reload. The JSON
// keys are part of the control API and of the log.
type Record struct {
	Time   time.Time `json:"time"`
	Run    string    `json:"run"`
	Cell   string    `json:"cell"`
	Policy string    `json:"policy"`
	Digest string    `json:"digest"`
	Kind   Kind      `json:"kind"`

	// Host is the canonical name that was asked for, or, where the sandbox
	// sent none, an escaped and shortened form of what it did send.
	Host string `json:"host"`
	Port uint16 `json:"port"`

	Verdict Verdict `json:"verdict"`
	Reason  Reason  `json:"reason"`
	// Allowed is why a connection or request that was refused half-way had been
	// allowed until then, when its bytes passed; empty for all others.
	Allowed Reason `json:"allowed,omitempty"`
	// Rule is the allowlist entry that decided, as written, and Line its line
	// in the file; both are empty where no entry did.
	Rule string `json:"rule,omitempty"`
	Line int    `json:"line,omitempty"`
	// Detail says more about a refusal: the refused address, the fault in a hello.
	Detail string `json:"detail,omitempty"`

	Client   netip.AddrPort `json:"client,omitzero"`
	Upstream netip.AddrPort `json:"upstream,omitzero"` // the address that was judged and dialled
	// BytesUp counts from the sandbox to the upstream, BytesDown the other way.
	BytesUp   int64 `json:"bytesUp"`
	BytesDown int64 `json:"bytesDown"`
	// DurationMS is how long the query, connection or request took, in ms.
	DurationMS int64 `json:"durationMs"`
	// Count is how many decisions the record stands for, where it is more than one:
	// see Tally.
	Count int64 `json:"count,omitempty"`
}

// A Receipt is all that one run reached and was refused, counted by host.
type Receipt struct {
	Policy string `json:"policy"`
	// Digest is the digest of the policy when the lease began; see Policy.Digest.
	Digest string `json:"digest"`
	// Changes are those of the policy during the lease, the oldest first.
	Changes []PolicyChange `json:"changes,omitempty"`
	Hosts   []ReceiptHost  `json:"hosts"`
	// Overflow counts the decisions that found no room for a row of their own, see
	// Places; they are in the log all the same. OverflowSums sums them by verdict, so
	// that rows and sums have all that the run did. Receipts of before had no sums.
	Overflow     int64        `json:"overflow,omitempty"`
	OverflowSums []VerdictSum `json:"overflowSums,omitempty"`
}

// A VerdictSum is what decisions of one verdict come to.
type VerdictSum struct {
	Verdict   Verdict `json:"verdict"`
	Count     int64   `json:"count"`
	BytesUp   int64   `json:"bytesUp"`
	BytesDown int64   `json:"bytesDown"`
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
	Host      string  `json:"host"`
	Port      uint16  `json:"port"`
	Kind      Kind    `json:"kind"`
	Verdict   Verdict `json:"verdict"`
	Reason    Reason  `json:"reason"`
	Count     int64   `json:"count"`
	BytesUp   int64   `json:"bytesUp"`
	BytesDown int64   `json:"bytesDown"`
}
