package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sallyport/firewall/budget"
)

// A Reach is something that a policy allows: a part of the names there are, on
// some ports.
type Reach struct {
	// Host is the name, with a leading dot where every subdomain goes with it.
	// It is "any" for the hosts that no entry names.
	Host string `json:"host"`
	// SubdomainsOnly says that the name itself, without the dot, is not meant.
	SubdomainsOnly bool     `json:"subdomainsOnly,omitempty"`
	Ports          []uint16 `json:"ports"`
	// Public says that public addresses may be dialled. It is false where only
	// the private ranges make the difference.
	Public  bool           `json:"public"`
	Private []netip.Prefix `json:"private,omitempty"`
	// Via is the proxy that leads there, "" where none does. A host that is
	// reached another way is both opened and closed.
	Via string `json:"via,omitempty"`
	// Except lists names below Host of which the same is not true.
	Except []string `json:"except,omitempty"`
}

// A PolicyDiff is what two allowlists make different in one policy.
type PolicyDiff struct {
	Policy string `json:"policy"`
	// Added and Removed say that only one of the files has the policy.
	Added   bool `json:"added,omitempty"`
	Removed bool `json:"removed,omitempty"`
	// Opens is what may be reached only under the new file, Closes what might be
	// only under the old one.
	Opens  []Reach `json:"opens,omitempty"`
	Closes []Reach `json:"closes,omitempty"`
	// ECH is "pass" or "refuse" where the new file says other than the old one.
	ECH string `json:"ech,omitempty"`
	// Budgets are those that differ between two policies of the same name.
	Budgets []BudgetDiff `json:"budgets,omitempty"`
}

// A BudgetDiff is a budget that a change of the file sets otherwise.
type BudgetDiff struct {
	Budget string `json:"budget"`
	// Was and Is are as in the file; "none" is no limit.
	Was string `json:"was"`
	Is  string `json:"is"`
	// Widens says that the new one allows more.
	Widens bool `json:"widens"`
}

func diffBudgets(was, is budget.Budget) []BudgetDiff {
	var diffs []BudgetDiff
	for _, k := range budget.Kinds() {
		text := func(n int64) string {
			if n == 0 {
				return budget.None
			}
			return k.Format(n)
		}
		if a, b := was.Get(k), is.Get(k); a != b {
			diffs = append(diffs, BudgetDiff{Budget: k.String(), Was: text(a), Is: text(b), Widens: b == 0 || a != 0 && b > a})
		}
	}
	return diffs
}

// Widens reports whether a sandbox gets further by the change.
func (c PolicyDiff) Widens() bool {
	return len(c.Opens) > 0 || c.ECH == wordPass || slices.ContainsFunc(c.Budgets, func(b BudgetDiff) bool { return b.Widens })
}

// Diff compares what two allowlists let sandboxes reach, policy by policy, and
// returns the policies that differ, sorted. It compares effects, not texts: what
// is written otherwise and comes to the same is no difference.
func Diff(old, new *Policies) []PolicyDiff {
	names := append(old.Names(), new.Names()...)
	slices.Sort(names)
	var changes []PolicyDiff
	for _, name := range slices.Compact(names) {
		was, had := old.Policy(name)
		is, has := new.Policy(name)
		c := PolicyDiff{Policy: name, Added: !had, Removed: !has, Opens: gained(was, is), Closes: gained(is, was)}
		if has && was.PassECH() != is.PassECH() {
			c.ECH = wordRefuse
			if is.PassECH() {
				c.ECH = wordPass
			}
		}
		if had && has {
			c.Budgets = diffBudgets(was.budget, is.budget)
		}
		if c.Added || c.Removed || c.ECH != "" || len(c.Budgets) > 0 || len(c.Opens)+len(c.Closes) > 0 {
			changes = append(changes, c)
		}
	}
	return changes
}

// gained is what b allows and a does not. The names of both split all names into
// parts within which neither makes a difference: each name itself, the rest of
// its subdomains, and the rest of all names. One name of each part is judged.
func gained(a, b *Policy) []Reach {
	if b == nil {
		return nil
	}
	g := &gain{a: a, b: b, fresh: "x"}
	names, ports := map[string]bool{}, map[uint16]bool{}
	for _, port := range openPorts {
		ports[port] = true
	}
	for _, p := range []*Policy{a, b} {
		if p == nil {
			continue
		}
		for s, nd := range p.nodes {
			names[s] = true
			for _, gr := range slices.Concat(nd.exact, nd.tree) {
				ports[gr.port] = true
			}
		}
	}
	for s := range names { // no name may begin with the label that stands for the rest
		if label, _, _ := strings.Cut(s, "."); len(label) >= len(g.fresh) {
			g.fresh = strings.Repeat("x", len(label)+1)
		}
	}
	g.names = keys(names)
	slices.SortStableFunc(g.names, func(s, t string) int { return strings.Count(s, ".") - strings.Count(t, ".") })
	var all []Reach
	for _, port := range sortedPorts(ports) {
		all = append(all, g.onPort(port)...)
	}
	return joinPorts(all)
}

func sortedPorts(set map[uint16]bool) []uint16 {
	var ports []uint16
	for p := range set {
		ports = append(ports, p)
	}
	slices.Sort(ports)
	return ports
}

type gain struct {
	a, b  *Policy
	names []string // by their number of labels
	fresh string   // a label that no name begins with
}

// A right is what one policy adds for one name and port; the zero right is nothing.
type right struct {
	public  bool
	via     string // where public is set
	private string // prefixes, in words
	ranges  []netip.Prefix
}

func (r right) none() bool { return !r.public && r.private == "" }
func (r right) same(as right) bool {
	return r.public == as.public && r.via == as.via && r.private == as.private
}

// at is what b adds to a for the name s.
func (g *gain) at(s string, port uint16) right {
	is := g.b.Decide(Name{s}, port)
	if !is.Allowed() {
		return right{}
	}
	was := g.a.Decide(Name{s}, port)
	r := right{public: !was.Allowed() || was.Via != is.Via}
	if r.public {
		r.via = is.Via
	}
	for _, p := range is.private {
		if r.public || !slices.ContainsFunc(was.private, func(q netip.Prefix) bool {
			return q.Bits() <= p.Bits() && q.Contains(p.Addr())
		}) {
			r.ranges = append(r.ranges, p)
		}
	}
	if len(r.ranges) > 0 {
		r.private = fmt.Sprint(r.ranges)
	}
	return r
}

// A part is the subdomains of a name, less those that have parts of their own.
type part struct {
	right right
	in    *Reach // the row that speaks of it
}

// onPort gives a row for each widest scope of one right, so that what holds for
// .example.com is not said of www.example.com again.
func (g *gain) onPort(port uint16) []Reach {
	var rows []*Reach
	row := func(host string, r right, apart bool) *Reach {
		rows = append(rows, &Reach{Host: host, SubdomainsOnly: apart, Ports: []uint16{port}, Public: r.public, Via: r.via, Private: r.ranges})
		return rows[len(rows)-1]
	}
	root := part{right: g.at(g.fresh+"."+g.fresh, port)}
	if !root.right.none() {
		root.in = row(wordAny, root.right, false)
	}
	parts := make(map[string]part, len(g.names))
	for _, s := range g.names {
		up := root
		for t, ok := parent(s); ok; t, ok = parent(t) {
			if p, has := parts[t]; has {
				up = p
				break
			}
		}
		name, rest := g.at(s, port), part{right: g.at(g.fresh+"."+s, port)}
		switch {
		case rest.right.same(up.right):
			rest.in = up.in
		case !rest.right.none():
			rest.in = row("."+s, rest.right, !name.same(rest.right))
		case g.refused(g.fresh+"."+s, port):
			up.except("." + s)
		}
		whole := rest.in != nil && !rest.right.same(up.right)
		switch {
		case name.same(rest.right) && whole, name.same(up.right):
		case !name.none():
			row(s, name, false)
		case g.refused(s, port) && rest.in == up.in:
			up.except(s)
		}
		parts[s] = rest
	}
	out := make([]Reach, len(rows))
	for i, r := range rows {
		out[i] = *r
	}
	return out
}

func (p part) except(host string) {
	if p.in != nil {
		p.in.Except = append(p.in.Except, host)
	}
}

// refused reports whether b refuses s by a word of the file: that the floor and
// public resolvers are refused goes without saying.
func (g *gain) refused(s string, port uint16) bool {
	d := g.b.Decide(Name{s}, port)
	return !d.Allowed() && d.Reason != ReasonDoH && d.Reason != ReasonFloorName
}

// joinPorts puts rows that differ in their port only into one.
func joinPorts(rows []Reach) []Reach {
	index := make(map[string]int)
	var out []Reach
	for _, r := range rows {
		key := fmt.Sprint(r.Host, r.SubdomainsOnly, r.Public, r.Via, r.Private, r.Except)
		if i, ok := index[key]; ok {
			out[i].Ports = append(out[i].Ports, r.Ports...)
			continue
		}
		index[key] = len(out)
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b Reach) int { return strings.Compare(a.Host, b.Host) })
	return out
}

// String is the reach in words: ".github.com on port 443, but not gist.github.com".
func (r Reach) String() string {
	var b strings.Builder
	switch {
	case r.Host == wordAny:
		b.WriteString("every host that no entry names (any)")
	case r.SubdomainsOnly:
		b.WriteString("the subdomains of " + strings.TrimPrefix(r.Host, "."))
	default:
		b.WriteString(r.Host)
	}
	ports := strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Ports), " ", ", "), "[]")
	fmt.Fprintf(&b, " on port %s", ports)
	if len(r.Private) > 0 {
		if r.Public {
			b.WriteString(", also")
		}
		fmt.Fprintf(&b, " at %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(r.Private), " ", ", "), "[]"))
	}
	if r.Via != "" {
		b.WriteString(" by way of " + r.Via)
	}
	if len(r.Except) > 0 {
		b.WriteString(", but not " + strings.Join(r.Except, ", "))
	}
	return b.String()
}
