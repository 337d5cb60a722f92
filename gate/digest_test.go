package gate

import (
	"encoding/json"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// logged are the decisions in the log, as far as it has them.
func (g *testGate) logged(t *testing.T) (all []account.Record) {
	t.Helper()
	for line := range strings.Lines(g.log.String()) {
		if !strings.Contains(line, `"msg":"decision"`) {
			continue
		}
		var r account.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// The record of a tunnel that outlives a reload has the digest of the policy whose
// rule and line it has.
func TestRecordsNameThePolicyThatDecided(t *testing.T) {
	g, path := reloading(t, false)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	kept, err := g.tunnel(t, 1, "kept.site.example")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.tunnel(t, 1, "lost.site.example"); err != nil {
		t.Fatal(err)
	}
	before, _ := g.daemon.Allowlist.Policy("strict")
	moved := strings.Replace(narrowed, "\n", "\n# one\n# two\n# three\n", 1)
	after, _ := parsePolicies(t, moved).Policy("strict")
	writeFile(t, path, moved)
	if _, err := g.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	fresh, err := g.tunnel(t, 1, "kept.site.example")
	if err != nil {
		t.Fatal(err)
	}
	g.wantResolved(t, 1, "kept.site.example.")
	_, _ = g.tunnel(t, 1, "")
	fresh.Close()
	kept.Close()
	g.release(t, "c1")

	type key struct {
		kind   account.Kind
		host   string
		reason firewall.Reason
		digest string
	}
	want := map[key]struct {
		rule string
		line int
	}{
		{account.KindTLS, "kept.site.example", firewall.ReasonListed, before.Digest()}:        {".site.example", 3},
		{account.KindTLS, "lost.site.example", firewall.ReasonPolicyChanged, before.Digest()}: {".site.example", 3},
		{account.KindTLS, "kept.site.example", firewall.ReasonListed, after.Digest()}:         {"kept.site.example", 6},
		{account.KindDNS, "kept.site.example", firewall.ReasonListed, after.Digest()}:         {"kept.site.example", 6},
		{account.KindTLS, "", firewall.ReasonNoSNI, after.Digest()}:                           {"", 0}, // no policy was asked
	}
	for _, r := range g.logged(t) {
		k := key{r.Kind, r.Host, r.Reason, r.Digest}
		if w, ok := want[k]; !ok || r.Rule != w.rule || r.Line != w.line {
			t.Errorf("record %+v", r)
		}
		delete(want, k)
	}
	for k := range want {
		t.Errorf("no record %+v", k)
	}
}
