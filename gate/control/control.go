// Package control is the gate's control API as its users see it: the JSON
// types and a client. The gate serves it over HTTP on a unix socket that only
// gate and executor can open; see Client for the calls.
package control

import (
	"net/netip"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// A Lease asks the gate to open its listeners in one cell for one run: the body
// of PUT /v1/cells/{id}.
type Lease struct {
	// Run is the identifier of the run, repeated in every decision record.
	Run string `json:"run"`
	// Policy is the name of the policy of allowlist.yaml that the cell gets.
	Policy string `json:"policy"`
	// Address is the gate's own address in the cell, Prefix the cell's subnet.
	// Clients outside the prefix are refused.
	Address netip.Addr   `json:"address"`
	Prefix  netip.Prefix `json:"prefix"`
	// Pool is the range that this cell and others have their subnets of, if the
	// backend has one. All in it are addresses of cells, also of those that nobody
	// uses now.
	Pool netip.Prefix `json:"pool,omitzero"`
}

// A Cell is a leased cell: the answer to PUT, GET and DELETE of /v1/cells/{id}.
// The answer to DELETE holds the final receipt.
type Cell struct {
	ID string `json:"id"`
	Lease
	// Digest is that of the policy in effect now; it is empty for one that a
	// reloaded allowlist no longer has.
	Digest  string          `json:"digest"`
	Receipt account.Receipt `json:"receipt"`
}

// Health is the answer to GET /healthz.
type Health struct {
	// Status is StatusOK, or StatusDenying while the gate lives and denies
	// everything, as the first of Warnings says.
	Status string `json:"status"`
	// Instance differs after every start of the gate: a client that sees it
	// change knows that all its leases are gone.
	Instance string   `json:"instance"`
	Digest   string   `json:"digest"` // of the whole allowlist
	Policies []string `json:"policies"`
	// Digests are those of the policies, by their names.
	Digests map[string]string `json:"digests,omitempty"`
	// Bounded are the policies that allow only hosts which they list: any other one is to
	// be taken for one that allows any host.
	Bounded []string `json:"bounded,omitempty"`
	// Generation counts the allowlists that were in force since the gate's start,
	// which is 1.
	Generation uint64 `json:"generation"`
	// Allowlist says whether the file is what is in force.
	Allowlist Allowlist `json:"allowlist"`
	Cells     int       `json:"cells"` // leased now
	// Version is that of the gate's build.
	Version string `json:"version"`
	// Warnings say what does not stop the gate and should not be so.
	Warnings []string `json:"warnings,omitempty"`
}

// The values of Health.Status.
const (
	StatusOK      = "ok"
	StatusDenying = "denying"
)

// Allowlist is the state of the file of policies.
type Allowlist struct {
	State string    `json:"state"` // one of the Allowlist constants
	Since time.Time `json:"since"` // when it came to that
	Error string    `json:"error,omitempty"`
}

// The states of the file. A stale one was refused, as Error says, and the
// policies before it are in force.
const (
	AllowlistCurrent = "current"
	AllowlistStale   = "stale"
)

// CellList is the answer to GET /v1/cells. Its receipts have no rows.
type CellList struct {
	Cells []Cell `json:"cells"`
}

// A Question is about a connection that somebody else would make: the body of
// POST /v1/judge.
type Question struct {
	Policy string `json:"policy"` // of the allowlist
	Host   string `json:"host"`
	Port   uint16 `json:"port"`
	// Addresses are those that the host's name led to; without any, only the name is
	// judged.
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// A Judgement is what the policy in force says of a Question: the same as it would say
// to a sandbox.
type Judgement struct {
	Digest  string           `json:"digest"` // of the policy
	Verdict firewall.Verdict `json:"verdict"`
	Reason  firewall.Reason  `json:"reason"`
	Rule    string           `json:"rule,omitempty"`
	Group   string           `json:"group,omitempty"`
	Line    int              `json:"line,omitempty"`
	Detail  string           `json:"detail,omitempty"`
	// Refusals say for each of the addresses why it may not be dialled, empty where it may.
	Refusals []string `json:"refusals,omitempty"`
}

// Two kinds of line in the stream of GET /v1/decisions that are no decisions.
const (
	// KindDropped stands for records that the reader was too slow to get; Detail
	// says how many.
	KindDropped account.Kind = "dropped"
	// KindEnd is the last line of a stream that is complete. A stream that ends
	// without it has broken. Client.Decisions does not yield it.
	KindEnd account.Kind = "end"
)

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Problem is the body of every error answer (application/problem+json, RFC 9457).
type Problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Code   string `json:"code"` // one of the Code constants
	Detail string `json:"detail,omitempty"`
}

// The codes of a Problem.
const (
	CodeInvalid       = "invalid_request"   // 400: a field is missing or malformed
	CodeNoPolicy      = "unknown_policy"    // 422: no policy of that name in the allowlist
	CodeLeased        = "cell_leased"       // 409: the cell has a lease already
	CodeNotLeased     = "cell_not_leased"   // 404: the cell has no lease
	CodeListen        = "listen_failed"     // 409: the address is not (or no longer) the gate's
	CodeReloadInvalid = "allowlist_invalid" // 422: the file was refused, the policies are as before
	CodeNotFound      = "not_found"         // 404: no such route
	CodeStopping      = "gate_stopping"     // 503: the gate is about to end
)
