package firewall

import "iter"

// UserContentHosts are the suffixes that Name.UserContent knows, each with what is
// there.
func UserContentHosts() iter.Seq2[string, string] {
	return func(yield func(suffix, what string) bool) {
		for _, row := range userContent {
			if !yield(row.host, row.what) {
				return
			}
		}
	}
}
