package gate

import (
	"crypto/tls"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// budgeted is the allowlist of the tests whose policy strict has a budget.
func budgeted(budgets string) string {
	return strings.Replace(testAllowlist, "strict: {allow: [site, into]}", "strict: {allow: [site, into], budgets: {"+budgets+"}}", 1)
}

// Each cell has an account of its own; what a run used up is in its receipt.
//
// probe: X5, L4
// oracle: the receipts of two runs, and what the next run in the same cell may use
func TestBudgetIsOfOneLease(t *testing.T) {
	g := start(t, upstream(t), func(d *Daemon) { d.Allowlist = parsePolicies(t, budgeted("wildcardNames: 2")) })
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "strict"))
	for _, host := range []string{"a.site.example", "b.site.example", "a.site.example"} {
		if _, err := g.tunnel(t, 1, host); err != nil {
			t.Errorf("%s, within the budget: %v", host, err)
		}
	}
	if _, err := g.tunnel(t, 1, "c.site.example"); err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("over the budget: %v", err)
	}
	for _, host := range []string{"c.site.example", "d.site.example"} {
		if _, err := g.tunnel(t, 2, host); err != nil {
			t.Errorf("%s, of another run: %v", host, err)
		}
	}
	one, two := g.release(t, "c1").Receipt, g.release(t, "c2").Receipt
	if n := count(one, account.KindTLS, "c.site.example", firewall.ReasonBudget); n != 1 {
		t.Errorf("receipt %+v", one)
	}
	for _, h := range two.Hosts {
		if h.Verdict != firewall.Allow {
			t.Errorf("receipt of the other run: %+v", h)
		}
	}

	// The next run in the same cell begins with nothing used.
	g.lease(t, "c1", cellLease(1, "run-3", "strict"))
	if _, err := g.tunnel(t, 1, "c.site.example"); err != nil {
		t.Errorf("the next run: %v", err)
	}
}

// DNS and tunnel count on one account, whose limits a reload changes.
func TestBudgetReloaded(t *testing.T) {
	g, path := reloading(t, false)
	l := cellLease(1, "run-1", "strict")
	g.lease(t, "c1", l)
	held, err := g.tunnel(t, 1, "a.site.example")
	if err != nil {
		t.Fatal(err)
	}
	reload := func(text string) {
		t.Helper()
		saveByRename(t, path, text)
		if _, err := g.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	reload(budgeted("connections: 1, upload: 1B, queriesPerSecond: 1000"))
	if _, err := g.tunnel(t, 1, "a.site.example"); err == nil {
		t.Error("a second connection over the new budget")
	}
	if err := echo(held); err == nil {
		t.Error("the tunnel under way is not held to the new budget")
	}
	reload(budgeted("queriesPerSecond: 1"))
	flood, query := g.client(t, "udp4", 1, g.daemon.ports.dns), new(dns.Msg).SetQuestion("a.site.example.", dns.TypeA)
	for range 50 {
		if err := (&dns.Conn{Conn: flood}).WriteMsg(query); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		cell, err := g.Cell(t.Context(), "c1")
		if err != nil {
			t.Fatal(err)
		}
		if count(cell.Receipt, account.KindDNS, "", firewall.ReasonBudget) > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the queries are not held to the new budget: %+v", cell.Receipt)
		}
	}
	reload(testAllowlist)
	if _, err := g.tunnel(t, 1, "a.site.example"); err != nil {
		t.Errorf("without a budget again: %v", err)
	}
	receipt := g.release(t, "c1").Receipt
	if n := count(receipt, account.KindTLS, "a.site.example", firewall.ReasonBudget); n != 1 {
		t.Errorf("%d cuts of the tunnel, receipt %+v", n, receipt)
	}
	if n := count(receipt, account.KindTLS, "", firewall.ReasonBudget); n != 1 {
		t.Errorf("%d refused connections, receipt %+v", n, receipt)
	}
}

// A budget that a reload brings binds what a run has used before it: the bytes of a
// host whose tunnel stands, and the names below an entry.
//
// probe: X5
// oracle: the tunnel under way, the receipt, and the refusals of a host and a name
// within the old policy and over the new budget
func TestBudgetAddedByReload(t *testing.T) {
	g, path := reloading(t, false)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	open := func(host string) *tls.Conn {
		t.Helper()
		c, err := g.tunnel(t, 1, host)
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		return c
	}
	used, fresh := open("a.site.example"), open("b.site.example")
	if _, err := used.Write(make([]byte, 200_000)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(used, make([]byte, 200_000)); err != nil {
		t.Fatal(err)
	}
	saveByRename(t, path, budgeted("hostUpload: 100kB, wildcardNames: 2"))
	if _, err := g.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := echo(fresh); err != nil {
		t.Errorf("a tunnel within the new budget: %v", err)
	}
	if err := echo(used); err == nil {
		t.Error("a tunnel over the new budget goes on")
	}
	open("b.site.example")
	for _, host := range []string{"a.site.example", "c.site.example"} {
		if _, err := g.tunnel(t, 1, host); err == nil || !strings.Contains(err.Error(), "access denied") {
			t.Errorf("%s, over the new budget: %v", host, err)
		}
	}
	if _, err := fresh.Write(make([]byte, 100_000)); err == nil {
		_, err = io.ReadFull(fresh, make([]byte, 100_000))
		if err == nil {
			t.Error("a tunnel that stood before is not held to the new budget of its host")
		}
	}
	receipt := g.release(t, "c1").Receipt
	for host, want := range map[string]int64{"a.site.example": 2, "b.site.example": 1, "c.site.example": 1} {
		if n := count(receipt, account.KindTLS, host, firewall.ReasonBudget); n != want {
			t.Errorf("%s: %d connections over budget, want %d; receipt %+v", host, n, want, receipt)
		}
	}
}
