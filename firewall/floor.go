package firewall

import (
	"strings"

	"sallyport/firewall/hosts"
)

// PageHost is the host that the gate itself serves in every cell, on port 80 and
// under every policy: there a process of the sandbox learns what is allowed, and
// why something was not. The name is on the floor, so that no allowlist can have
// it lead elsewhere; Policy.Decide denies it as any other there.
const PageHost = "policy.sallyport.internal"

// A floorRule is what is said of a name of hosts.Floor.
type floorRule struct{ rule, detail string }

// floorRules are made once, since refusals must not cost more than allowances.
var floorRules = func() map[string]floorRule {
	m := make(map[string]floorRule)
	for r := range hosts.Floor.All() {
		m[r.Host] = floorRule{rule: "." + r.Host, detail: r.What + " is never allowed: ." + r.Host}
	}
	return m
}()

// OnFloor reports whether n is a metadata or internal name, which no policy
// allows, and which rule of the floor says so.
func (n Name) OnFloor() (rule string, bad bool) {
	r, bad := n.floor()
	return r.rule, bad
}

func (n Name) floor() (floorRule, bool) {
	row, bad := hosts.Floor.Find(n.s)
	if !bad {
		return floorRule{}, false
	}
	return floorRules[row.Host], true
}

// resolverDetail is the detail of a refusal of hosts.Resolvers.
const resolverDetail = "a public DNS-over-HTTPS resolver, which needs an entry of its own"

// parent cuts the first label off s; ok is false where nothing is left.
func parent(s string) (_ string, ok bool) {
	if i := strings.IndexByte(s, '.'); i >= 0 {
		return s[i+1:], true
	}
	return "", false
}
