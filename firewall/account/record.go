// Package account counts what one run does with what its policy allows.
//
// A [Record] is one decision of the gate. A [Ledger] counts the records of a run
// into its [Receipt], in bounded memory; a [Tally] makes one record of many
// events; a [Quota] shares out a bounded number of rows. A [Meter] holds a run to
// its budget.
//
//	ledger := account.NewLedger(policy.Name(), policy.Digest())
//	ledger.Add(record)
//	receipt := ledger.Receipt()
//
// The package decides nothing by a name or an address: that is for package
// firewall. It writes no files and logs nothing.
package account

import (
	"net/netip"
	"time"

	"sallyport/firewall"
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

	Verdict firewall.Verdict `json:"verdict"`
	Reason  firewall.Reason  `json:"reason"`
	// Allowed is why a connection or request that was refused half-way had been
	// allowed until then, when its bytes passed; empty for all others.
	Allowed firewall.Reason `json:"allowed,omitempty"`
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
