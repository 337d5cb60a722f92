package allowlist

import (
	"github.com/agnivade/levenshtein"

	"sallyport/firewall"
)

// quote and show make a part of the file fit for a message.
func quote(s string) string { return `"` + show(s) + `"` }
func show(s string) string  { return firewall.Escape(s, 80) }

// suggest gives `, did you mean "x"?` for the known word that is nearest to s.
func suggest(s string, known []string) string {
	best, word := 3, ""
	if len(s) > 64 { // more than any key or name of a group: not worth the time
		return ""
	}
	for _, k := range known {
		if d := levenshtein.ComputeDistance(s, k); d < best && d < len(k) {
			best, word = d, k
		}
	}
	if word == "" {
		return ""
	}
	return ", did you mean " + quote(word) + "?"
}
