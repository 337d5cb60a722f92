package allowlist

import (
	"maps"

	"sallyport/firewall"
	"sallyport/firewall/budget"
)

// A draft is a policy while its parts are put together.
type draft struct {
	any      bool
	anyLine  int
	ech      *bool  // nil where no policy says
	via      string // of what says no other; as in the file
	budget   budget.Budget
	grants   grants
	removed  map[firewall.Scope]*firewall.Entry
	takenOut map[*firewall.Entry]*firewall.Entry // by which removal
}

// grants are the entries by what they allow.
type grants map[firewall.Scope]map[uint16]*firewall.Entry

func (g grants) add(e *firewall.Entry, port uint16) {
	if g[e.Scope] == nil {
		g[e.Scope] = make(map[uint16]*firewall.Entry)
	}
	g[e.Scope][port] = e
}

func newDraft() *draft {
	return &draft{
		grants: make(grants), removed: make(map[firewall.Scope]*firewall.Entry), takenOut: make(map[*firewall.Entry]*firewall.Entry),
	}
}

func (e *draft) clone() *draft {
	c := *e
	c.grants, c.removed, c.takenOut = make(grants), maps.Clone(e.removed), maps.Clone(e.takenOut)
	for s, ports := range e.grants {
		c.grants[s] = maps.Clone(ports)
	}
	return &c
}

func (e *draft) add(host *firewall.Entry) {
	for _, port := range host.Ports {
		e.grants.add(host, port)
	}
}

// remove takes away the scope of host: what lies in it goes, and where a wider
// entry still covers it, a mark stays. It reports whether anything changed.
func (e *draft) remove(host *firewall.Entry) bool {
	changed := false
	for scope, ports := range e.grants {
		if !host.Covers(scope) {
			continue
		}
		for _, removed := range ports {
			if e.takenOut[removed] == nil {
				e.takenOut[removed] = host
			}
		}
		delete(e.grants, scope)
		changed = true
	}
	if !e.covered(host.Scope) {
		return changed
	}
	maps.DeleteFunc(e.removed, func(scope firewall.Scope, _ *firewall.Entry) bool { return host.Covers(scope) })
	e.removed[host.Scope] = host
	return true
}

// covered reports whether something wider than s allows names in s.
func (e *draft) covered(s firewall.Scope) bool {
	if e.removed[s] != nil {
		return false
	}
	for wider := range s.Wider() {
		if len(e.grants[wider]) > 0 {
			return true
		}
		if e.removed[wider] != nil {
			return false
		}
	}
	return e.any
}

// rules are the draft as package firewall takes it, each entry with the proxy by which
// this policy reaches it.
func (e *draft) rules(policy string) firewall.Rules {
	r := firewall.Rules{
		Policy: policy, Remove: e.removed, TakenOut: e.takenOut, Allow: make(grants),
		Any: e.any, AnyLine: e.anyLine, PassECH: e.any, Via: Route("", e.via), Budget: e.budget,
	}
	if e.ech != nil {
		r.PassECH = *e.ech
	}
	routed := make(map[*firewall.Entry]*firewall.Entry)
	for _, ports := range e.grants {
		for port, host := range ports {
			if routed[host] == nil {
				routed[host] = host
				if via := Route(host.Via, e.via); via != host.Via {
					other := *host
					other.Via = via
					routed[host] = &other
				}
			}
			grants(r.Allow).add(routed[host], port)
		}
	}
	return r
}

// noProxy is what stands for none in the place of a proxy's name.
const noProxy = "none"

// Route is the proxy by which an entry or "any" is reached, "" for none, where via is
// its own word and otherwise that of its policy.
func Route(via, otherwise string) string {
	if via == "" {
		via = otherwise
	}
	if via == noProxy {
		return ""
	}
	return via
}
