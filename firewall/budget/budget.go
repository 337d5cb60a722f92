// Package budget bounds what one run may use of what its policy allows: bytes,
// names, connections, queries.
//
// A [Budget] is the bounds of one policy; each of its fields is a [Kind], which
// knows the word of the allowlist for it, its largest value and its text form.
// The package counts nothing: what a run has used is in package account.
//
//	n, ok := budget.Upload.Parse("100MB")
//	b := budget.Budget{Upload: n}
//
// The zero Budget limits nothing. Which hosts a run may reach is not a matter of
// budgets.
package budget

import "strconv"

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

// A Kind is one of the bounds of a Budget.
type Kind int

// The kinds of budget, in the order of the documentation.
const (
	Upload Kind = iota
	Download
	HostUpload
	HostDownload
	WildcardNames
	WildcardBytes
	Connections
	ConnectionsPerSecond
	QueriesPerSecond
)

// The largest values. Those of names bound the memory of a meter.
const (
	maxBytes         = 1 << 50
	maxWildcardNames = 1 << 16
	maxWildcardBytes = 1 << 20
	maxRate          = 1_000_000
)

var kinds = [...]struct {
	word string
	size bool // in bytes, with a unit; else a number
	max  int64
	of   func(*Budget) *int64
}{
	Upload:               {"upload", true, maxBytes, func(b *Budget) *int64 { return &b.Upload }},
	Download:             {"download", true, maxBytes, func(b *Budget) *int64 { return &b.Download }},
	HostUpload:           {"hostUpload", true, maxBytes, func(b *Budget) *int64 { return &b.HostUpload }},
	HostDownload:         {"hostDownload", true, maxBytes, func(b *Budget) *int64 { return &b.HostDownload }},
	WildcardNames:        {"wildcardNames", false, maxWildcardNames, func(b *Budget) *int64 { return &b.WildcardNames }},
	WildcardBytes:        {"wildcardBytes", true, maxWildcardBytes, func(b *Budget) *int64 { return &b.WildcardBytes }},
	Connections:          {"connections", false, maxRate, func(b *Budget) *int64 { return &b.Connections }},
	ConnectionsPerSecond: {"connectionsPerSecond", false, maxRate, func(b *Budget) *int64 { return &b.ConnectionsPerSecond }},
	QueriesPerSecond:     {"queriesPerSecond", false, maxRate, func(b *Budget) *int64 { return &b.QueriesPerSecond }},
}

// Kinds lists all kinds, in the order of the documentation.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// String is the word of the allowlist for k.
func (k Kind) String() string { return kinds[k].word }

// IsSize reports whether k is in bytes, and so written with a unit.
func (k Kind) IsSize() bool { return kinds[k].size }

// Max is the largest value of k.
func (k Kind) Max() int64 { return kinds[k].max }

// Get is what b says of k, 0 for no limit.
func (b *Budget) Get(k Kind) int64 { return *kinds[k].of(b) }

// Set changes what b says of k.
func (b *Budget) Set(k Kind, value int64) { *kinds[k].of(b) = value }

// Binding lists the budgets that bind a connection, as the file writes them: those
// of the whole run, of the host, and, if the host is a wildcard's, of the names below
// an entry.
func (b *Budget) Binding(wildcard bool) []string {
	var binding []string
	for _, k := range Kinds() {
		ofNames := k == WildcardNames || k == WildcardBytes
		if v := b.Get(k); v != 0 && (!ofNames || wildcard) {
			binding = append(binding, k.String()+" "+k.Format(v))
		}
	}
	return binding
}

// Exceeded is the detail of a refusal for the sake of k.
func (b *Budget) Exceeded(k Kind) string {
	return "over budget: " + k.String() + " " + k.Format(b.Get(k))
}

// Format writes a value of k as the file may, without loss.
func (k Kind) Format(n int64) string {
	if !k.IsSize() {
		return strconv.FormatInt(n, 10)
	}
	return formatSize(n)
}
