package firewall

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/publicsuffix"
)

// Each row of data has a canonical host, which no other row has, and says what it
// is and where that is written down. What is only known from hearsay is counted.
func TestRowsHaveSources(t *testing.T) {
	seen := map[string]bool{}
	unsourced := 0
	for list, rows := range map[string][]sourced{"floorNames": floorNames, "resolvers": resolvers, "userContent": userContent} {
		for _, r := range rows {
			if n, err := ParseName(r.host); strings.Contains(r.host, ".") && (err != nil || n.String() != r.host) ||
				r.host != strings.ToLower(r.host) || strings.Trim(r.host, ".") != r.host || r.host == "" {
				t.Errorf("%s: %q is not canonical: %q, %v", list, r.host, n, err)
			}
			if seen[r.host] || r.what == "" {
				t.Errorf("%s: %q is there twice, or does not say what it is", list, r.host)
			}
			seen[r.host] = true
			if u, err := url.Parse(r.source); r.source == hearsay {
				unsourced++
			} else if err != nil || u.Scheme != "https" || !strings.Contains(u.Host, ".") {
				t.Errorf("%s: the source of %s is %q, %v", list, r.host, r.source, err)
			}
		}
	}
	if unsourced > 3 {
		t.Errorf("%d rows have no source", unsourced)
	}
}

// shipped are the two policies of the file that operators begin with.
func shipped(t *testing.T) map[string]*Policy {
	t.Helper()
	ps, err := Load("../allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	strict, ok1 := ps.Policy("strict")
	open, ok2 := ps.Policy("open")
	if !ok1 || !ok2 {
		t.Fatal("no strict or no open")
	}
	return map[string]*Policy{"strict": strict, "open": open}
}

// wantNever wants that no policy allows host, or what is under it, on any port, for
// that reason.
func wantNever(t *testing.T, policies map[string]*Policy, host string, reason Reason) {
	t.Helper()
	for _, spelling := range []string{host, strings.ToUpper(host) + ".", "a." + host, "x.y." + host} {
		n, err := ParseName(spelling)
		if err != nil && !strings.Contains(host, ".") {
			continue // a single label is no name at all
		} else if err != nil {
			t.Fatal(err)
		}
		for name, p := range policies {
			for _, d := range []Decision{p.DecideDNS(n), p.Decide(n, 443), p.Decide(n, 80)} {
				if d.Allowed() || d.Reason != reason {
					t.Errorf("%s under %s: %+v, want %s", n, name, d, reason)
				}
			}
		}
	}
}

// covering is a policy that allows the registered domain that host is under, with
// all its subdomains; nil where an operator cannot write that, or where it would
// name host itself.
func covering(t *testing.T, host string) map[string]*Policy {
	t.Helper()
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil || domain == host {
		return nil
	}
	if _, bad := mustName(t, domain).OnFloor(); bad {
		return nil
	}
	p := mustPolicy(t, "version: 1\npolicies: {p: {allow: [any, {host: ."+domain+", ports: [80, 443]}]}}\n", "p")
	wantDecision(t, p, "control-"+strings.ReplaceAll(host, ".", "-")+"."+domain, 443, Allow, ReasonListed, "."+domain)
	return map[string]*Policy{"." + domain: p}
}

// No policy that is shipped, and no wildcard that happens to cover it, reaches a
// public resolver.
//
// probe: P6
// oracle: the decisions of the shipped file for every row of the list, beside one
// for a sibling name that the same wildcard allows.
func TestNoShippedPolicyReachesResolvers(t *testing.T) {
	policies, covered := shipped(t), 0
	for _, r := range resolvers {
		wantNever(t, policies, r.host, ReasonDoH)
		wider := covering(t, r.host)
		wantNever(t, wider, r.host, ReasonDoH)
		covered += len(wider)
	}
	if covered < 40 {
		t.Errorf("only %d rows were tried under a wildcard", covered)
	}
	wantDecision(t, policies["open"], "example.com", 443, Allow, ReasonOpen, "any")
}

// The same holds for the names of metadata services, which no entry can name.
//
// probe: N6, D18
// oracle: as above.
func TestNoPolicyReachesTheFloor(t *testing.T) {
	policies, covered := shipped(t), 0
	for _, r := range floorNames {
		wantNever(t, policies, r.host, ReasonFloorName)
		if !strings.Contains(r.host, ".") {
			continue
		}
		wider := covering(t, r.host)
		wantNever(t, wider, r.host, ReasonFloorName)
		covered += len(wider)
		for _, entry := range []string{r.host, "." + r.host, "a." + r.host} {
			src := "version: 1\npolicies: {p: {allow: [any, " + entry + "]}}\n"
			if _, err := Parse(strings.NewReader(src), "f"); err == nil || !strings.Contains(err.Error(), "can never be allowed") {
				t.Errorf("an entry %s: %v", entry, err)
			}
		}
	}
	if covered < 6 {
		t.Errorf("only %d rows were tried under a wildcard", covered)
	}
}

// The shipped list has no suffix under which anybody can publish, by this
// package's list and by the public suffix list, and no entry above one; an entry for
// one draws a warning.
//
// probe: P3, P9
// oracle: the entries of the shipped file themselves, beside the open policy, which
// allows what strict refuses.
func TestDefaultsHaveNoUserContent(t *testing.T) {
	policies := shipped(t)
	for _, r := range userContent {
		for _, s := range []string{r.host, "anybody." + r.host} {
			wantDecision(t, policies["strict"], s, 443, Deny, ReasonNotListed, "")
			wantDecision(t, policies["open"], s, 443, Allow, ReasonOpen, "any")
		}
		if suffix, what, known := mustName(t, "my.bucket."+r.host).UserContent(); !known || suffix != r.host || what != r.what {
			t.Errorf("%s: %q %q %v", r.host, suffix, what, known)
		}
		if suffix, icann := publicsuffix.PublicSuffix(r.host); suffix == r.host && icann {
			t.Errorf("%s is a suffix of a registry, not of a vendor", r.host)
		}
		wantWarning(t, "."+r.host, true)
	}
	for name, nd := range policies["strict"].nodes {
		if len(nd.exact)+len(nd.tree) == 0 {
			continue
		}
		suffix, _ := publicsuffix.PublicSuffix(name)
		if _, _, known := (Name{name}).UserContent(); known || suffix == name && name != ownSuffixes[0] || publishedUnder(Name{name}, true) != nil {
			t.Errorf("strict allows %s", name)
		}
	}
	for entry, want := range map[string]bool{
		".amazonaws.com": true, ".windows.net": true, "storage.googleapis.com": true,
		"bucket.storage.googleapis.com": false, "mine.github.io": false, ".example.com": false, ".githubusercontent.com": false,
	} {
		wantWarning(t, entry, want)
	}
	if _, _, known := (Name{}).UserContent(); known {
		t.Error("no name is known")
	}
}

func wantWarning(t *testing.T, entry string, want bool) {
	t.Helper()
	ps := mustParse(t, "version: 1\npolicies: {p: {allow: ["+entry+"]}}\n")
	if ws := ps.Warnings(); len(ws) > 0 != want {
		t.Errorf("warnings of an entry %s: %v", entry, ws)
	}
}
