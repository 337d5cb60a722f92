// Package review compares what allowlists and runs come to, for whoever keeps an
// allowlist: what a change of the file opens and closes, which entries make no
// difference, what a run reached that an earlier one did not, and what an entry would
// allow of what was refused.
//
//	for _, d := range review.Diff(before.Policies, after.Policies) {
//		fmt.Println(d.Policy, d.Opens, d.Closes)
//	}
//
// The package judges with package firewall and decides nothing itself; it writes no
// files.
package review

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/budget"
	"sallyport/firewall/hosts"
)

// A Reach is something that a policy allows: a part of the names there are, on
// some ports.
type Reach struct {
	// Host is the name, with a leading dot where every subdomain goes with it.
	// It is firewall.Any for the hosts that no entry names.
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

// What PolicyDiff.ECH says, as in the file.
const (
	echPass   = "pass"
	echRefuse = "refuse"
)

// Widens reports whether a sandbox gets further by the change.
func (c PolicyDiff) Widens() bool {
	return len(c.Opens) > 0 || c.ECH == echPass || slices.ContainsFunc(c.Budgets, func(b BudgetDiff) bool { return b.Widens })
}

// Diff compares what two allowlists let sandboxes reach, policy by policy, and
// returns the policies that differ, sorted. It compares effects, not texts: what
// is written otherwise and comes to the same is no difference.
func Diff(old, new *firewall.Policies) []PolicyDiff {
	names := append(old.Names(), new.Names()...)
	slices.Sort(names)
	var changes []PolicyDiff
	for _, name := range slices.Compact(names) {
		was, had := old.Policy(name)
		is, has := new.Policy(name)
		c := PolicyDiff{Policy: name, Added: !had, Removed: !has, Opens: gained(was, is), Closes: gained(is, was)}
		if has && was.PassECH() != is.PassECH() {
			c.ECH = echRefuse
			if is.PassECH() {
				c.ECH = echPass
			}
		}
		if had && has {
			c.Budgets = diffBudgets(was.Budget(), is.Budget())
		}
		if c.Added || c.Removed || c.ECH != "" || len(c.Budgets) > 0 || len(c.Opens)+len(c.Closes) > 0 {
			changes = append(changes, c)
		}
	}
	return changes
}

// gained is what b allows and a does not. The names of both split all names into
// parts within which neither makes a difference: each name itself, the rest of
// its subdomains, and the rest of all names. Each part is judged once.
func gained(a, b *firewall.Policy) []Reach {
	if b == nil {
		return nil
	}
	g := &gain{a: a, b: b}
	names, ports := make(map[firewall.Name]bool), make(map[uint16]bool)
	for row := range hosts.Resolvers.All() { // which are refused unless they are named
		if n, err := firewall.ParseName(row.Host); err == nil {
			names[n] = true
		}
	}
	for _, p := range []*firewall.Policy{a, b} {
		rules := p.Rules()
		for s, granted := range rules.Allow {
			names[s.Name] = true
			for port := range granted {
				ports[port] = true
			}
		}
		for s := range rules.Remove {
			names[s.Name] = true
		}
		if rules.Any {
			ports[80], ports[443] = true, true
		}
	}
	g.names = slices.SortedFunc(maps.Keys(names), func(a, b firewall.Name) int {
		return cmp.Or(strings.Count(a.String(), ".")-strings.Count(b.String(), "."), strings.Compare(a.String(), b.String()))
	})
	var all []Reach
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		all = append(all, g.onPort(port)...)
	}
	return joinPorts(all)
}

type gain struct {
	a, b  *firewall.Policy
	names []firewall.Name // by their number of labels
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

// added is what one decision allows beside another one about the same names.
func added(was, is firewall.Decision) right {
	if !is.Allowed() {
		return right{}
	}
	r := right{public: !was.Allowed() || was.Via != is.Via}
	if r.public {
		r.via = is.Via
	}
	for _, p := range is.Private() {
		if r.public || !slices.ContainsFunc(was.Private(), func(q netip.Prefix) bool {
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
	root := part{right: added(g.a.DecideUnnamed(port), g.b.DecideUnnamed(port))}
	if !root.right.none() {
		root.in = row(firewall.Any, root.right, false)
	}
	parts := make(map[firewall.Name]part, len(g.names))
	for _, n := range g.names {
		up := root
		for wider := range (firewall.Scope{Name: n, Subdomains: true}).Wider() {
			if p, has := parts[wider.Name]; has {
				up = p
				break
			}
		}
		itself, below := g.b.Decide(n, port), g.b.DecideSubdomains(n, port)
		name, rest := added(g.a.Decide(n, port), itself), part{right: added(g.a.DecideSubdomains(n, port), below)}
		switch {
		case rest.right.same(up.right):
			rest.in = up.in
		case !rest.right.none():
			rest.in = row("."+n.String(), rest.right, !name.same(rest.right))
		case refused(below):
			up.except("." + n.String())
		}
		whole := rest.in != nil && !rest.right.same(up.right)
		switch {
		case name.same(rest.right) && whole, name.same(up.right):
		case !name.none():
			row(n.String(), name, false)
		case refused(itself) && rest.in == up.in:
			up.except(n.String())
		}
		parts[n] = rest
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

// refused reports whether d refuses by a word of the file: that the floor and
// public resolvers are refused goes without saying.
func refused(d firewall.Decision) bool {
	return !d.Allowed() && d.Reason != firewall.ReasonDoH && d.Reason != firewall.ReasonFloorName
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
	case r.Host == firewall.Any:
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
