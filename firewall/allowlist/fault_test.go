package allowlist_test

import (
	"regexp"
	"strings"
	"testing"

	"sallyport/firewall/allowlist"
)

// TestSuggestions puts what a message says to write in the place of what is wrong,
// and requires that the file is right then.
func TestSuggestions(t *testing.T) {
	suggested := regexp.MustCompile(`write (?:each with a dash of its own, or |a blank behind the dash, |the host alone, )?(?:"([^"]+)"|(\[[^\]]*\]|\{[^}]*\}|any$))`)
	for _, test := range []struct{ before, bad, behind string }{
		{"allow: [", "“a.example”", "]"},
		{"allow: [", "'‘a.example’'", "]"},
		{"allow: ", "all", ""},
		{"allow: ", "a.example", ""},
		{"allow: ", "“a.example”", ""},
		{"allow:\n      ", "a.example\n      b.example", "\n"},
		{"allow:\n      ", "-a.example", "\n"},
		{"allow: ", "a.example, .b.example", ""},
		{"allow: [", "*.example.com", "]"},
		{"allow: [", "a.example:8443", "]"},
		{"allow: [", "https://a.example/x", "]"},
		{"allow: [", "a.example/x", "]"},
		{"allow: [", "bücher.example", "]"},
	} {
		const head = "version: 1\npolicies:\n  p:\n    "
		_, err := allowlist.Parse(strings.NewReader(head+test.before+test.bad+test.behind), "f")
		if err == nil {
			t.Errorf("%q is right", test.bad)
			continue
		}
		m := suggested.FindStringSubmatch(err.Error())
		if m == nil {
			t.Errorf("%q: no suggestion in %v", test.bad, err)
			continue
		}
		if _, err := allowlist.Parse(strings.NewReader(head+test.before+m[1]+m[2]+test.behind), "f"); err != nil {
			t.Errorf("%q: the suggestion %q is refused: %v", test.bad, m[1]+m[2], err)
		}
	}
}
