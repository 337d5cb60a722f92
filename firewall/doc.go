// Package firewall decides what a sandbox may reach.
//
// It turns what a sandbox sends into a canonical [Name], and answers with a
// [Decision]: allowed or not, by which entry of a [Policy], and why. Below every policy
// lies a floor that no setting lowers: names of metadata services and of internal
// networks ([Name.OnFloor]), and addresses that must not be dialled ([JudgeAddr]).
// [NewPolicies] makes policies of checked [Rules]; package allowlist has them from a
// file.
//
// The shortest use:
//
//	policy, ok := policies.Policy("strict")
//	name, err := firewall.ParseName("API.github.com.")
//	decision := policy.Decide(name, 443)
//	...resolve the name...
//	ok, detail := firewall.JudgeAnswer(decision, addrs)
//
// A denial is a value, not an error. The zero value of every type denies: a nil
// Policy, an empty Policy, a zero Name and a zero Decision allow nothing.
//
// The package resolves nothing, dials nothing and logs nothing. It judges host
// names and addresses only; what is said inside a TLS connection to an allowed
// host is out of its sight.
package firewall
