package patch

import (
	"iter"
	"strings"
)

// Ways are the well-known hosts to which, with those under them, anybody can write
// or from which anybody can be reached, each with what it is. Suffixes under which
// anybody can get a host are firewall.UserContentHosts.
func Ways() iter.Seq2[string, string] {
	return func(yield func(host, what string) bool) {
		for _, w := range ways {
			for host := range strings.FieldsSeq(w.hosts) {
				if !yield(host, w.what) {
					return
				}
			}
		}
	}
}
