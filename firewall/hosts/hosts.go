// Package hosts lists well-known hosts that a judgement needs: those that no policy
// may reach, and those through which a sandbox could carry out what it reads.
//
// Each [Row] names one host, and with it all its subdomains, and says what it is and
// where that is written down. No list can be whole.
//
//	row, known := hosts.Resolvers.Find("x.dns.google")
//
// The package imports nothing of ours and judges nothing.
package hosts

import (
	"iter"
	"strings"
)

// A Row is one host with all its subdomains.
type Row struct{ Host, What, Source string }

// The sources that are no documents.
const (
	// hearsay is the source of a name that no documentation of its cloud has, but
	// other products refuse: to refuse it does no harm.
	hearsay = "other products' lists"
	// itself is the source of a site that says at its own address what it is.
	itself = "the site itself"
)

// maxName is the length of the longest host name (RFC 1035), in bytes.
const maxName = 253

// A List is some rows of one sort. It is immutable.
type List struct {
	rows  []Row
	index map[string]*Row // by host
	// lengths has the lengths of the hosts: most names are none of these without a
	// look into the index.
	lengths [maxName + 1]bool
}

func newList(rows []Row) *List {
	l := &List{rows: rows, index: make(map[string]*Row, len(rows))}
	for i := range rows {
		host := rows[i].Host
		l.index[host], l.lengths[len(host)] = &rows[i], true
	}
	return l
}

// All are the rows, in the order of the list.
func (l *List) All() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for _, r := range l.rows {
			if !yield(r) {
				return
			}
		}
	}
}

// Find returns the row of name, which is canonical, or of the nearest host that name
// is below.
func (l *List) Find(name string) (Row, bool) {
	for len(name) > maxName {
		_, name, _ = strings.Cut(name, ".")
	}
	for name != "" {
		if l.lengths[len(name)] {
			if row := l.index[name]; row != nil {
				return *row, true
			}
		}
		_, name, _ = strings.Cut(name, ".")
	}
	return Row{}, false
}
