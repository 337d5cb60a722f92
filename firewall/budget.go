package firewall

import (
	"fmt"
	"strconv"

	"github.com/docker/go-units"

	"sallyport/internal/strictyaml"
)

// A Budget bounds what one run may use of what its policy allows. A field of 0
// is no limit, so that the zero Budget limits nothing.
type Budget struct {
	// Upload bounds the bytes from the sandbox to the outside over all
	// connections, Download those of the other way.
	Upload, Download int64
	// HostUpload and HostDownload bound the bytes of each host name.
	HostUpload, HostDownload int64
	// WildcardNames bounds the distinct names below one entry that covers
	// subdomains, WildcardBytes the bytes that these names have in front of the
	// entry's own. Without them the names themselves can carry a file out.
	WildcardNames, WildcardBytes int64
	// Connections bounds those that are open at once, ConnectionsPerSecond the
	// new ones, QueriesPerSecond the DNS queries. One second's worth may come at once.
	Connections, ConnectionsPerSecond, QueriesPerSecond int64
}

// The budgets, in the order of the documentation.
const (
	budgetUpload = iota
	budgetDownload
	budgetHostUpload
	budgetHostDownload
	budgetWildcardNames
	budgetWildcardBytes
	budgetConnections
	budgetConnectionRate
	budgetQueryRate
)

// The most that a budget may say. Those of names bound the memory of a Meter.
const (
	maxBytes         = 1 << 50
	maxWildcardNames = 1 << 16
	maxWildcardBytes = 1 << 20
	maxRate          = 1_000_000
)

var budgetKeys = [...]struct {
	word string
	size bool // in bytes, with a unit; else a number
	most int64
	of   func(*Budget) *int64
}{
	budgetUpload:         {"upload", true, maxBytes, func(b *Budget) *int64 { return &b.Upload }},
	budgetDownload:       {"download", true, maxBytes, func(b *Budget) *int64 { return &b.Download }},
	budgetHostUpload:     {"hostUpload", true, maxBytes, func(b *Budget) *int64 { return &b.HostUpload }},
	budgetHostDownload:   {"hostDownload", true, maxBytes, func(b *Budget) *int64 { return &b.HostDownload }},
	budgetWildcardNames:  {"wildcardNames", false, maxWildcardNames, func(b *Budget) *int64 { return &b.WildcardNames }},
	budgetWildcardBytes:  {"wildcardBytes", true, maxWildcardBytes, func(b *Budget) *int64 { return &b.WildcardBytes }},
	budgetConnections:    {"connections", false, maxRate, func(b *Budget) *int64 { return &b.Connections }},
	budgetConnectionRate: {"connectionsPerSecond", false, maxRate, func(b *Budget) *int64 { return &b.ConnectionsPerSecond }},
	budgetQueryRate:      {"queriesPerSecond", false, maxRate, func(b *Budget) *int64 { return &b.QueriesPerSecond }},
}

// wordNone lifts a budget that a policy would take over from the one it extends.
const wordNone = "none"

// A budgetValue is one line of "budgets:".
type budgetValue struct {
	key   int
	value int64 // 0 for none
	at    strictyaml.Pos
}

func (b *Budget) set(values []budgetValue) {
	for _, v := range values {
		*budgetKeys[v.key].of(b) = v.value
	}
}

// lines are what b adds to the text that a policy's digest is of.
func (b Budget) lines() []string {
	var lines []string
	for _, k := range budgetKeys {
		if n := *k.of(&b); n != 0 {
			lines = append(lines, fmt.Sprintf("budget %s %d", k.word, n))
		}
	}
	return lines
}

// BudgetsOf lists the budgets that bind a connection to n which d has allowed, as
// the file writes them: those of the whole run, of the host, and of the names below
// an entry where n is one of them.
func (p *Policy) BudgetsOf(n Name, d Decision) []string {
	var bind []string
	b := p.Budget()
	for key, k := range budgetKeys {
		below := key == budgetWildcardNames || key == budgetWildcardBytes
		if v := *k.of(&b); v != 0 && d.Allowed() && (!below || d.tree && n.s != d.under) {
			bind = append(bind, k.word+" "+showBudget(v, k.size))
		}
	}
	return bind
}

// over is the detail of a refusal for the sake of one budget.
func (b *Budget) over(key int) string {
	k := &budgetKeys[key]
	return "over budget: " + k.word + " " + showBudget(*k.of(b), k.size)
}

// showBudget writes a budget as the file may, without loss.
func showBudget(n int64, size bool) string {
	if !size {
		return strconv.FormatInt(n, 10)
	}
	for _, s := range []string{units.HumanSize(float64(n)), units.BytesSize(float64(n))} {
		if back, ok := parseSize(s); ok && back == n {
			return s
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
