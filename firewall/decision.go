package firewall

import (
	"net/netip"
	"slices"
)

// Verdict is the outcome of a decision.
type Verdict string

// The verdicts. The zero value is not an allowance.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
)

// Reason is the stable, documented cause of a decision.
type Reason string

// The reasons. Anything but the first two and ReasonPolicyPage goes with Deny.
const (
	ReasonListed         Reason = "listed"          // an entry of the allowlist matched
	ReasonOpen           Reason = "open"            // the policy allows any host
	ReasonNotListed      Reason = "not_listed"      // no entry matched
	ReasonPortNotAllowed Reason = "port_not_listed" // an entry matched the host, not the port
	ReasonRemoved        Reason = "removed"         // a "remove:" of the policy takes the host away
	ReasonDoH            Reason = "doh_refused"     // a public DNS-over-HTTPS resolver that no entry names
	ReasonFloorName      Reason = "floor_name"      // a metadata or internal name: never allowed
	ReasonBadName        Reason = "bad_name"        // not a host name: IP literal, single label, bad bytes
	ReasonAddress        Reason = "address_refused" // the name led to an address that must not be dialled
	ReasonResolve        Reason = "resolve_failed"  // the name did not resolve
	ReasonDial           Reason = "dial_failed"     // the judged address could not be reached
	ReasonBadHello       Reason = "bad_hello"       // not an acceptable TLS ClientHello
	ReasonNoSNI          Reason = "no_sni"          // a ClientHello that names no host
	ReasonECH            Reason = "ech_refused"     // an encrypted ClientHello under a policy that refuses it
	ReasonBadRequest     Reason = "bad_request"     // not an acceptable HTTP request
	ReasonBadQuery       Reason = "bad_query"       // not an acceptable DNS query
	ReasonLimit          Reason = "limit"           // a bound of the gate: connections, time, size
	ReasonForeignClient  Reason = "foreign_client"  // the peer's address is not of this cell
	ReasonLog            Reason = "log_unavailable" // the decision could not be written to the log
	ReasonBudget         Reason = "budget_exceeded" // the run has used up a budget of its policy
	ReasonPolicyChanged  Reason = "policy_changed"  // allowed when it began, cut when the policy no longer did
	ReasonFault          Reason = "gate_fault"      // the gate's own code failed over it
	ReasonPolicyPage     Reason = "policy_page"     // the gate's own page, which every cell can read
)

// A Decision is what a policy says of a name and a port. A denial is a value,
// not an error; the zero Decision denies.
type Decision struct {
	Verdict Verdict
	Reason  Reason
	// Rule is the entry that decided, as written in the file, Group the group it
	// came from and Line its line; empty or zero where no entry decided.
	Rule  string
	Group string
	Line  int
	// Detail is a short explanation for a person; it holds no unescaped input.
	Detail string
	// Via names the proxy by way of which the host is reached; "" if none.
	Via string

	private []netip.Prefix // what the entry that decided admits beside public addresses
	refused []netip.Prefix // what the operator refuses beside the floor
	tree    bool           // it covers every name below under; "" is every name
	under   string
}

// Allowed reports whether the verdict is Allow.
func (d Decision) Allowed() bool { return d.Verdict == Allow }

// Private are the ranges that the entry which decided admits beside public addresses.
func (d Decision) Private() []netip.Prefix { return slices.Clone(d.private) }

// Below says whether n is one of the names that the entry which allowed it covers
// beside its own, and what it is below; "" stands for the names that no entry has.
func (d Decision) Below(n Name) (entry string, below bool) {
	return d.under, d.Allowed() && d.tree && n.s != d.under
}
