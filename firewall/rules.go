package firewall

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sallyport/firewall/budget"
	"sallyport/firewall/hosts"
)

// An Entry is one host that a policy allows or removes, as a file has it.
type Entry struct {
	Scope
	Ports   []uint16       // sorted, at least one
	Private []netip.Prefix // sorted; what it admits beside public addresses
	Via     string         // the proxy that leads to the host; "" if none does
	Written string         // the host as written
	Group   string         // the group that it is in; "" for a policy's own list
	Line    int
}

// Rules are what one policy says, with everything that it refers to put in.
type Rules struct {
	Policy string // its name
	// Allow has the entry that allows a port of a scope. The entry has that scope
	// and that port.
	Allow map[Scope]map[uint16]*Entry
	// Remove has the entries that take a scope away from wider ones.
	Remove map[Scope]*Entry
	// TakenOut are the entries that a removal has taken out of Allow, each with the
	// removal. They decide nothing, and serve explanations.
	TakenOut map[*Entry]*Entry
	// Any allows the hosts that no entry names; AnyLine is where the file says so.
	Any     bool
	AnyLine int
	// PassECH lets a TLS hello hide the host's real name.
	PassECH bool
	// Via is the proxy that leads to what Any allows; "" if none does.
	Via    string
	Budget budget.Budget
}

// NewPolicies makes the policies that rules describe. It is the only way to make a
// policy that allows anything. Rules that go below the floor, contradict themselves or
// name one policy twice are an error, and then there are no policies at all.
func NewPolicies(rules []Rules) (*Policies, error) {
	ps := &Policies{byName: make(map[string]*Policy)}
	for _, r := range rules {
		p, err := newPolicy(r)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", Escape(r.Policy, 80), err)
		}
		if r.Policy == "" || ps.byName[r.Policy] != nil {
			return nil, fmt.Errorf("policy %q has no name, or that of another one", Escape(r.Policy, 80))
		}
		ps.byName[r.Policy] = p
		ps.names = append(ps.names, r.Policy)
	}
	slices.Sort(ps.names)
	h := sha256.New()
	for _, n := range ps.names {
		fmt.Fprintf(h, "%s %s\n", n, ps.byName[n].digest)
	}
	ps.digest = fmt.Sprintf("sha256:%x", h.Sum(nil))
	return ps, nil
}

// newPolicy checks rules and makes the immutable form, which shares nothing with them.
func newPolicy(r Rules) (*Policy, error) {
	p := &Policy{
		name: r.Policy, any: r.Any, anyLine: r.AnyLine, passECH: r.PassECH, via: r.Via, budget: r.Budget,
		nodes: make(map[string]*node), takenOut: make(map[*entry]*entry),
	}
	made := make(copies)
	for s, ports := range r.Allow {
		grants, err := made.grants(s, ports)
		if err != nil {
			return nil, err
		}
		if nd := p.addNode(s.Name); s.Subdomains {
			nd.tree = grants
		} else {
			nd.exact = grants
		}
	}
	for s, e := range r.Remove {
		removal, err := made.entry(e)
		if err != nil || removal.Scope != s {
			return nil, errors.Join(fmt.Errorf("the removal of %s is not of it", s), err)
		}
		if nd := p.addNode(s.Name); s.Subdomains {
			nd.noTree = removal
		} else {
			nd.noExact = removal
		}
	}
	for e, by := range r.TakenOut {
		removed, err1 := made.entry(e)
		removal, err2 := made.entry(by)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		p.takenOut[removed] = removal
	}
	p.digest = r.digest()
	for row := range hosts.Resolvers.All() {
		p.addNode(Name{row.Host}).resolver = true
	}
	return p, nil
}

func (p *Policy) addNode(n Name) *node {
	nd := p.nodes[n.s]
	if nd == nil {
		nd = new(node)
		p.nodes[n.s] = nd
	}
	return nd
}

// copies are the entries of a policy: the same one for the same given.
type copies map[*Entry]*entry

// entry checks and copies e.
func (made copies) entry(e *Entry) (*entry, error) {
	if e == nil {
		return nil, errors.New("an entry is missing")
	}
	if made[e] == nil {
		if err := e.check(); err != nil {
			return nil, err
		}
		own := &entry{Entry: *e, badPort: "ports allowed: " + strings.Trim(strings.ReplaceAll(fmt.Sprint(e.Ports), " ", ", "), "[]")}
		own.Ports, own.Private = slices.Clone(e.Ports), slices.Clone(e.Private)
		made[e] = own
	}
	return made[e], nil
}

// grants checks and copies what a policy allows of one scope.
func (made copies) grants(s Scope, ports map[uint16]*Entry) ([]grant, error) {
	var grants []grant
	for port, e := range ports {
		own, err := made.entry(e)
		if err != nil {
			return nil, err
		}
		if own.Scope != s || !slices.Contains(own.Ports, port) {
			return nil, fmt.Errorf("the entry %s does not allow port %d of %s", own.Scope, port, s)
		}
		grants = append(grants, grant{port, own})
	}
	slices.SortFunc(grants, func(a, b grant) int { return int(a.port) - int(b.port) })
	return grants, nil
}

// check finds what no entry may say.
func (e *Entry) check() error {
	if e.Name.IsZero() {
		return errors.New("an entry names no host")
	}
	if rule, bad := e.Name.OnFloor(); bad {
		return fmt.Errorf("the entry %s can never be allowed: %s is for metadata services and internal names", e.Scope, rule)
	}
	if len(e.Ports) == 0 || e.Ports[0] == 0 || !slices.IsSorted(e.Ports) {
		return fmt.Errorf("the entry %s has no ports, or not from 1 on in their order", e.Scope)
	}
	for _, p := range e.Private {
		if ok, detail := JudgeRange(p); !ok {
			return fmt.Errorf("the entry %s: the range %s %s", e.Scope, p, detail)
		}
	}
	return nil
}

// digest hashes a text of one line for each thing that bears on a decision.
func (r *Rules) digest() string {
	lines := []string{"ech " + strconv.FormatBool(r.PassECH)}
	via := func(name string) string {
		if name == "" {
			return ""
		}
		return " via " + name
	}
	if r.Any {
		lines = append(lines, Any+via(r.Via))
	}
	for s, ports := range r.Allow {
		for port, e := range ports {
			lines = append(lines, fmt.Sprintf("allow %s %d %v%s", s, port, e.Private, via(e.Via)))
		}
	}
	for s := range r.Remove {
		lines = append(lines, "remove "+s.String())
	}
	for _, k := range budget.Kinds() {
		if n := r.Budget.Get(k); n != 0 {
			lines = append(lines, fmt.Sprintf("budget %s %d", k, n))
		}
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte("sallyport policy 1\n" + strings.Join(lines, "\n")))
	return fmt.Sprintf("sha256:%x", sum)
}

// Rules are what p was made of: a copy, which the caller may keep and change.
func (p *Policy) Rules() Rules {
	if p == nil {
		return Rules{}
	}
	r := Rules{
		Policy: p.name, Any: p.any, AnyLine: p.anyLine, PassECH: p.passECH, Via: p.via, Budget: p.budget,
		Allow: make(map[Scope]map[uint16]*Entry), Remove: make(map[Scope]*Entry), TakenOut: make(map[*Entry]*Entry),
	}
	given := make(map[*entry]*Entry)
	give := func(e *entry) *Entry {
		if given[e] == nil {
			c := e.Entry
			c.Ports, c.Private = slices.Clone(e.Ports), slices.Clone(e.Private)
			given[e] = &c
		}
		return given[e]
	}
	for _, nd := range p.nodes {
		for _, g := range slices.Concat(nd.exact, nd.tree) {
			if r.Allow[g.entry.Scope] == nil {
				r.Allow[g.entry.Scope] = make(map[uint16]*Entry)
			}
			r.Allow[g.entry.Scope][g.port] = give(g.entry)
		}
		for _, e := range []*entry{nd.noExact, nd.noTree} {
			if e != nil {
				r.Remove[e.Scope] = give(e)
			}
		}
	}
	for e, by := range p.takenOut {
		r.TakenOut[give(e)] = give(by)
	}
	return r
}
