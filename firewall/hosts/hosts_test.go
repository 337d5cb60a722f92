package hosts_test

import (
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/publicsuffix"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/firewalltest"
	"sallyport/firewall/hosts"
)

var lists = map[string]*hosts.List{
	"Floor": hosts.Floor, "Resolvers": hosts.Resolvers, "UserContent": hosts.UserContent,
	"DropSites": hosts.DropSites, "Registries": hosts.Registries,
}

// Each row has a canonical host, which no other row has, and says what it
// is and where that is written down. What is only known from hearsay is counted.
func TestRowsHaveSources(t *testing.T) {
	seen := map[string]bool{}
	unsourced := 0
	for list, rows := range lists {
		for r := range rows.All() {
			if n, err := firewall.ParseName(r.Host); strings.Contains(r.Host, ".") && (err != nil || n.String() != r.Host) ||
				r.Host != strings.ToLower(r.Host) || strings.Trim(r.Host, ".") != r.Host || r.Host == "" {
				t.Errorf("%s: %q is not canonical: %q, %v", list, r.Host, n, err)
			}
			if seen[r.Host] || r.What == "" {
				t.Errorf("%s: %q is there twice, or does not say what it is", list, r.Host)
			}
			seen[r.Host] = true
			if u, err := url.Parse(r.Source); r.Source == "other products' lists" {
				unsourced++
			} else if list == "DropSites" && r.Source == "the site itself" {
				continue
			} else if err != nil || u.Scheme != "https" || !strings.Contains(u.Host, ".") {
				t.Errorf("%s: the source of %s is %q, %v", list, r.Host, r.Source, err)
			}
		}
	}
	if unsourced > 3 {
		t.Errorf("%d rows have no source", unsourced)
	}
}

// Find finds a host and what is below it, and nothing beside it.
func TestFind(t *testing.T) {
	for list, rows := range lists {
		for r := range rows.All() {
			for _, name := range []string{r.Host, "a." + r.Host, "x.y." + r.Host} {
				if found, ok := rows.Find(name); !ok || found != r {
					t.Errorf("%s: %s is found as %+v, %v", list, name, found, ok)
				}
			}
			if found, ok := rows.Find("a-" + r.Host); ok && found.Host == r.Host {
				t.Errorf("%s: a-%s is found", list, r.Host)
			}
		}
		for _, name := range []string{"", ".", "example.com", strings.Repeat("a.", 200) + "example.com"} {
			if found, ok := rows.Find(name); ok {
				t.Errorf("%s: %.20s is found as %+v", list, name, found)
			}
		}
	}
}

// shipped are the two policies of the file that operators begin with.
func shipped(t *testing.T) map[string]*firewall.Policy {
	t.Helper()
	ps, err := allowlist.Load("../../allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	strict, ok1 := ps.Policy("strict")
	open, ok2 := ps.Policy("open")
	if !ok1 || !ok2 {
		t.Fatal("no strict or no open")
	}
	return map[string]*firewall.Policy{"strict": strict, "open": open}
}

// wantNever requires that no policy allows host, or what is under it, on any port, for
// that reason.
func wantNever(t *testing.T, policies map[string]*firewall.Policy, host string, reason firewall.Reason) {
	t.Helper()
	for _, spelling := range []string{host, strings.ToUpper(host) + ".", "a." + host, "x.y." + host} {
		n, err := firewall.ParseName(spelling)
		if err != nil && !strings.Contains(host, ".") {
			continue // a single label is no name at all
		} else if err != nil {
			t.Fatal(err)
		}
		for name, p := range policies {
			for _, d := range []firewall.Decision{p.DecideDNS(n), p.Decide(n, 443), p.Decide(n, 80)} {
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
func covering(t *testing.T, host string) map[string]*firewall.Policy {
	t.Helper()
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil || domain == host {
		return nil
	}
	if _, bad := firewalltest.Name(t, domain).OnFloor(); bad {
		return nil
	}
	p := firewalltest.Policy(t, "version: 1\npolicies: {p: {allow: [any, {host: ."+domain+", ports: [80, 443]}]}}\n", "p")
	firewalltest.WantDecision(t, p, "control-"+strings.ReplaceAll(host, ".", "-")+"."+domain, 443, firewall.Allow, firewall.ReasonListed, "."+domain)
	return map[string]*firewall.Policy{"." + domain: p}
}

// No policy that is shipped, and no wildcard that happens to cover it, reaches a
// public resolver.
//
// probe: P6
// oracle: the decisions of the shipped file for every row of the list, beside one
// for a sibling name that the same wildcard allows.
func TestNoShippedPolicyReachesResolvers(t *testing.T) {
	policies, covered := shipped(t), 0
	for r := range hosts.Resolvers.All() {
		wantNever(t, policies, r.Host, firewall.ReasonDoH)
		wider := covering(t, r.Host)
		wantNever(t, wider, r.Host, firewall.ReasonDoH)
		covered += len(wider)
	}
	if covered < 40 {
		t.Errorf("only %d rows were tried under a wildcard", covered)
	}
	firewalltest.WantDecision(t, policies["open"], "example.com", 443, firewall.Allow, firewall.ReasonOpen, "any")
}

// The same holds for the names of metadata services, which no entry can name.
//
// probe: N6, D18
// oracle: as above.
func TestNoPolicyReachesTheFloor(t *testing.T) {
	policies, covered := shipped(t), 0
	for r := range hosts.Floor.All() {
		wantNever(t, policies, r.Host, firewall.ReasonFloorName)
		if !strings.Contains(r.Host, ".") {
			continue
		}
		wider := covering(t, r.Host)
		wantNever(t, wider, r.Host, firewall.ReasonFloorName)
		covered += len(wider)
		for _, entry := range []string{r.Host, "." + r.Host, "a." + r.Host} {
			src := "version: 1\npolicies: {p: {allow: [any, " + entry + "]}}\n"
			if _, err := allowlist.Parse(strings.NewReader(src), "f"); err == nil || !strings.Contains(err.Error(), "can never be allowed") {
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
	for r := range hosts.UserContent.All() {
		for _, s := range []string{r.Host, "anybody." + r.Host} {
			firewalltest.WantDecision(t, policies["strict"], s, 443, firewall.Deny, firewall.ReasonNotListed, "")
			firewalltest.WantDecision(t, policies["open"], s, 443, firewall.Allow, firewall.ReasonOpen, "any")
		}
		if suffix, icann := publicsuffix.PublicSuffix(r.Host); suffix == r.Host && icann {
			t.Errorf("%s is a suffix of a registry, not of a vendor", r.Host)
		}
		wantWarning(t, "."+r.Host, true)
	}
	for scope := range policies["strict"].Rules().Allow {
		name := scope.Name.String()
		suffix, _ := publicsuffix.PublicSuffix(name)
		if _, known := hosts.UserContent.Find(name); known || suffix == name && name != "githubusercontent.com" {
			t.Errorf("strict allows %s", name)
		}
		for r := range hosts.UserContent.All() {
			if strings.HasSuffix(r.Host, "."+name) {
				t.Errorf("strict allows %s, and so %s", name, r.Host)
			}
		}
	}
	for entry, want := range map[string]bool{
		".amazonaws.com": true, ".windows.net": true, "storage.googleapis.com": true,
		"bucket.storage.googleapis.com": false, "mine.github.io": false, ".example.com": false, ".githubusercontent.com": false,
	} {
		wantWarning(t, entry, want)
	}
}

func wantWarning(t *testing.T, entry string, want bool) {
	t.Helper()
	ps := firewalltest.File(t, "version: 1\npolicies: {p: {allow: ["+entry+"]}}\n")
	if ws := ps.Warnings(); len(ws) > 0 != want {
		t.Errorf("warnings of an entry %s: %v", entry, ws)
	}
}
