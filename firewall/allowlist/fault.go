package allowlist

import (
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"sallyport/firewall"
)

// typeset are quotation marks that word processors and web pages put in the place
// of those of a keyboard.
var typeset = strings.NewReplacer("\u201c", `"`, "\u201d", `"`, "\u201e", `"`, "\u00ab", `"`, "\u00bb", `"`, "\u2018", "'", "\u2019", "'", "\u201a", "'")

// wordsOf are the words of s, which commas or blanks part, and whether they are several.
func wordsOf(s string) (words []string, several bool) {
	words = strings.FieldsFunc(s, func(c rune) bool { return c == ',' || c == ' ' || c == '\n' })
	return words, len(words) > 1
}

func areHosts(words []string) bool {
	return !slices.ContainsFunc(words, func(w string) bool {
		_, err := firewall.ParseName(strings.TrimPrefix(w, "."))
		return err != nil
	})
}

// listFault says what would be right where a word stands in the place of a list.
func listFault(s string) string {
	words, several := wordsOf(typeset.Replace(s))
	for i, w := range words {
		words[i] = strings.Trim(w, `"'`)
	}
	switch list := show(strings.Join(words, ", ")); {
	case len(words) == 0:
		return quote(s) + " is not a list: write any, or [...] with the groups and hosts in it"
	case strings.HasPrefix(s, "-") && !several && len(s) > 1:
		return quote(s) + " is not a list: write a blank behind the dash, " + quote("- "+strings.TrimLeft(s, "-"))
	case strings.HasPrefix(s, "-"):
		return quote(s) + " is not a list: write each host on a line of its own, with a dash and a blank before it"
	case several, looksLikeHost(words[0]):
		return quote(s) + " is not a list: write [" + list + "]"
	case s == "all", s == "everything":
		return quote(s) + " is not a list: write any"
	default:
		return quote(s) + " is not a list: write any, or [" + list + "]"
	}
}

// hostFault says what is wrong with a host and what would be right.
func hostFault(s, bare string, err error) string {
	if strings.Contains(s, "*") {
		return starFault(s)
	}
	if straight := typeset.Replace(s); straight != s {
		return quote(s) + " holds quotation marks that are typeset: write " + quote(strings.Trim(straight, `"'`))
	}
	if words, several := wordsOf(s); several && areHosts(words) {
		return quote(s) + " is not one host: write each with a dash of its own, or [" + show(strings.Join(words, ", ")) + "]"
	}
	if _, rest, isURL := strings.Cut(s, "://"); isURL {
		host, _, _ := strings.Cut(rest, "/")
		return quote(s) + " is a URL: write the host alone, " + quote(host)
	}
	if _, err := netip.ParsePrefix(bare); err == nil {
		return quote(s) + " is an address range: an entry names a host, and its private: the ranges it may lead to"
	}
	if host, _, hasPath := strings.Cut(bare, "/"); hasPath {
		return quote(s) + " holds a path: write the host alone, " + quote(host)
	}
	name, port, _ := strings.Cut(bare, ":")
	if _, err := firewall.ParseName(name); err == nil && firewall.IsNumber(port) && port != "" {
		return quote(s) + " holds a port: write {host: " + show(strings.TrimSuffix(s, bare)+name) + ", ports: [" + show(port) + "]}"
	}
	if a, e := idna.Lookup.ToASCII(bare); err == firewall.ErrNotASCII && e == nil && a != bare {
		return quote(s) + " is not ASCII: write " + quote(strings.TrimSuffix(s, bare)+a)
	}
	if err == firewall.ErrSingleLabel && s != bare {
		return quote(s) + " is a public suffix or a single label: name the hosts that are meant"
	}
	return quote(s) + " is not a host: " + err.Error()
}

func starFault(s string) string {
	rest, ok := strings.CutPrefix(s, "*.")
	if !ok || strings.Contains(rest, "*") {
		return quote(s) + `: there are no stars here; ".example.com" is that name and every subdomain, and "allow: any" is every host`
	}
	if _, err := firewall.ParseName(rest); err != nil {
		return quote(s) + ": there are no stars here, and a whole public suffix cannot be allowed: name the hosts that are meant"
	}
	return quote(s) + ": there are no stars here; write " + quote("."+rest) + " for that name and every subdomain"
}
