package firewall_test

import (
	"net/netip"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/firewalltest"
)

// entry is one that NewPolicies takes.
func entry(t *testing.T, host string) *firewall.Entry {
	t.Helper()
	return &firewall.Entry{Scope: firewall.Scope{Name: firewalltest.Name(t, host)}, Ports: []uint16{443}, Written: host, Line: 1}
}

func allowing(entries ...*firewall.Entry) map[firewall.Scope]map[uint16]*firewall.Entry {
	allow := make(map[firewall.Scope]map[uint16]*firewall.Entry)
	for _, e := range entries {
		allow[e.Scope] = map[uint16]*firewall.Entry{443: e}
	}
	return allow
}

// TestNewPoliciesRefuses gives rules that nobody can have meant, one fault at a time:
// there are no policies then.
func TestNewPoliciesRefuses(t *testing.T) {
	good := func() firewall.Rules { return firewall.Rules{Policy: "p", Allow: allowing(entry(t, "a.example"))} }
	if ps, err := firewall.NewPolicies([]firewall.Rules{good()}); err != nil {
		t.Fatalf("control: %v", err)
	} else if p, _ := ps.Policy("p"); !p.Decide(firewalltest.Name(t, "a.example"), 443).Allowed() {
		t.Fatal("control: the host is refused")
	}
	for name, spoil := range map[string]func(*firewall.Rules){
		"no name":      func(r *firewall.Rules) { r.Policy = "" },
		"no host":      func(r *firewall.Rules) { r.Allow = allowing(&firewall.Entry{Ports: []uint16{443}}) },
		"no entry":     func(r *firewall.Rules) { r.Allow[firewall.Scope{}] = map[uint16]*firewall.Entry{443: nil} },
		"the floor":    func(r *firewall.Rules) { r.Allow = allowing(entry(t, "metadata.google.internal")) },
		"no ports":     func(r *firewall.Rules) { e := entry(t, "a.example"); e.Ports = nil; r.Allow = allowing(e) },
		"port 0":       func(r *firewall.Rules) { e := entry(t, "a.example"); e.Ports = []uint16{0, 443}; r.Allow = allowing(e) },
		"another port": func(r *firewall.Rules) { e := entry(t, "a.example"); e.Ports = []uint16{80}; r.Allow = allowing(e) },
		"another host": func(r *firewall.Rules) {
			r.Allow[firewall.Scope{Name: firewalltest.Name(t, "b.example")}] = r.Allow[entry(t, "a.example").Scope]
		},
		"metadata admitted":   func(r *firewall.Rules) { admit(t, r, "169.254.169.254/32") },
		"link-local admitted": func(r *firewall.Rules) { admit(t, r, "169.254.0.0/16") },
		"everything admitted": func(r *firewall.Rules) { admit(t, r, "0.0.0.0/0") },
		"removal of another": func(r *firewall.Rules) {
			r.Remove = map[firewall.Scope]*firewall.Entry{{Name: firewalltest.Name(t, "b.example")}: entry(t, "a.example")}
		},
		"removal of nothing":   func(r *firewall.Rules) { r.Remove = map[firewall.Scope]*firewall.Entry{{}: nil} },
		"taken out by nothing": func(r *firewall.Rules) { r.TakenOut = map[*firewall.Entry]*firewall.Entry{entry(t, "b.example"): nil} },
	} {
		r := good()
		spoil(&r)
		ps, err := firewall.NewPolicies([]firewall.Rules{{Policy: "other"}, r})
		if err == nil || ps != nil {
			t.Errorf("%s: no error, policies %v", name, ps.Names())
		}
		if p, ok := ps.Policy("p"); ok || p.Decide(firewalltest.Name(t, "a.example"), 443).Allowed() {
			t.Errorf("%s: there is a policy all the same", name)
		}
	}
	if ps, err := firewall.NewPolicies([]firewall.Rules{good(), good()}); err == nil || ps != nil {
		t.Error("two policies of one name")
	}
}

func admit(t *testing.T, r *firewall.Rules, prefix string) {
	e := entry(t, "a.example")
	e.Private = []netip.Prefix{netip.MustParsePrefix(prefix)}
	r.Allow = allowing(e)
}

// TestRulesOfAPolicy makes policies of the rules of others: they are the same, and
// whoever changes rules afterwards changes no policy.
func TestRulesOfAPolicy(t *testing.T) {
	for _, text := range []string{firewalltest.Family, firewalltest.Budgeted} {
		given := firewalltest.Policies(t, text)
		var rules []firewall.Rules
		for _, name := range given.Names() {
			p, _ := given.Policy(name)
			rules = append(rules, p.Rules())
		}
		again, err := firewall.NewPolicies(rules)
		if err != nil || again.Digest() != given.Digest() {
			t.Fatalf("%v, digests %s and %s", err, given.Digest(), again.Digest())
		}
		for _, r := range rules {
			for _, ports := range r.Allow {
				for port, e := range ports {
					e.Ports[0], e.Written = 1, "changed"
					delete(ports, port)
				}
			}
		}
		for _, name := range given.Names() {
			was, _ := given.Policy(name)
			is, _ := again.Policy(name)
			for _, host := range strings.Fields("git.example raw.git.example gist.git.example docs.example x.wild.example one.example") {
				for _, port := range []uint16{80, 443, 8443} {
					n := firewalltest.Name(t, host)
					a, b := was.Decide(n, port), is.Decide(n, port)
					if a.Verdict != b.Verdict || a.Reason != b.Reason || a.Rule != b.Rule || a.Line != b.Line {
						t.Errorf("%s: %s:%d: %+v, and %+v", name, host, port, a, b)
					}
				}
			}
		}
	}
	if r := (*firewall.Policy)(nil).Rules(); r.Any || len(r.Allow) != 0 {
		t.Errorf("no policy has the rules %+v", r)
	}
}

// TestPartsOfNames decides about what no entry names: below a name, everywhere, and as
// if a scope was not in the file.
func TestPartsOfNames(t *testing.T) {
	ps := firewalltest.Policies(t, firewalltest.Family)
	for _, test := range []struct {
		policy, host string
		below        firewall.Reason
		without      firewall.Reason // .host
	}{
		{"base", "git.example", firewall.ReasonListed, firewall.ReasonNotListed},
		{"base", "docs.example", firewall.ReasonNotListed, firewall.ReasonListed},
		{"base", "wiki.example", firewall.ReasonListed, firewall.ReasonNotListed},
		{"less", "old.git.example", firewall.ReasonRemoved, firewall.ReasonRemoved},
		{"wide", "wiki.example", firewall.ReasonOpen, firewall.ReasonOpen},
		{"wide", "metadata.google.internal", firewall.ReasonFloorName, firewall.ReasonFloorName},
		{"wide", "dns.google", firewall.ReasonDoH, firewall.ReasonDoH},
	} {
		p, _ := ps.Policy(test.policy)
		n := firewalltest.Name(t, test.host)
		if d := p.DecideSubdomains(n, 443); d.Reason != test.below || d.Allowed() != p.Decide(firewalltest.Name(t, "any-other."+test.host), 443).Allowed() {
			t.Errorf("%s: below %s: %+v", test.policy, test.host, d)
		}
		without := p.Without(firewall.Scope{Name: n, Subdomains: true})
		if d := without.Decide(n, 443); d.Reason != test.without {
			t.Errorf("%s without .%s: %+v", test.policy, test.host, d)
		}
		if d, other := p.DecideUnnamed(443), p.Decide(firewalltest.Name(t, "unnamed.test-of-ours.net"), 443); d.Reason != other.Reason {
			t.Errorf("%s: unnamed hosts: %+v and %+v", test.policy, d, other)
		}
	}
	for _, p := range []*firewall.Policy{nil, new(firewall.Policy)} {
		n := firewalltest.Name(t, "git.example")
		if p.DecideSubdomains(n, 443).Allowed() || p.DecideUnnamed(443).Allowed() || p.Without(firewall.Scope{Name: n}).Decide(n, 443).Allowed() {
			t.Error("a policy of nobody allows")
		}
	}
	wide, _ := ps.Policy("wide")
	if d := wide.Closed(firewall.ReasonLog, "x").DecideUnnamed(443); d.Allowed() || d.Reason != firewall.ReasonLog {
		t.Errorf("closed: %+v", d)
	}
}
