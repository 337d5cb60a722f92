package account

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"sallyport/firewall/budget"
	"sallyport/firewall/firewalltest"
)

// Another budget counts what was used before, also of what had none then.
func TestMeterSetBudget(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Budgeted, "none")
	m := NewMeter(budget.Budget{})
	f, _ := reach(t, m, p, "a.wild.example")
	f.Count(true, 900)
	m.SetBudget(budget.Budget{Upload: 1000, WildcardNames: 1, QueriesPerSecond: 1, Connections: 1})
	if !f.Count(true, 100) || f.Count(true, 1) {
		t.Error("what was used before does not count")
	}
	wantOver(t, "cut", f.Over(), "over budget: upload 1kB")
	m.SetBudget(budget.Budget{Upload: 2000, WildcardNames: 1, QueriesPerSecond: 1, Connections: 1})
	_, over := reach(t, m, p, "b.wild.example")
	wantOver(t, "a second name", over, "over budget: wildcardNames 1")
	m.SetBudget(budget.Budget{WildcardBytes: 1})
	f, over = reach(t, m, p, "a.wild.example")
	if over != "" || !f.Count(true, 900) {
		t.Errorf("the name that was counted: %q", over)
	}
	_, over = reach(t, m, p, "b.wild.example")
	wantOver(t, "the bytes of a second name", over, "over budget: wildcardBytes 1B")
	m.Query()
	m.SetBudget(budget.Budget{QueriesPerSecond: 1})
	m.Query()
	m.SetBudget(budget.Budget{QueriesPerSecond: 1, Upload: 1})
	if m.Query() {
		t.Error("the same budget again gives another second's queries")
	}
}

// A budget of hosts that comes later binds the connections that there are and those
// to come, by what the host has had.
func TestMeterSetHostBudget(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Budgeted, "none")
	m := NewMeter(budget.Budget{})
	for _, test := range []struct {
		up     bool
		budget budget.Budget
		over   string
	}{
		{true, budget.Budget{HostUpload: 1000}, "over budget: hostUpload 1kB"},
		{false, budget.Budget{HostDownload: 1000}, "over budget: hostDownload 1kB"},
	} {
		m.SetBudget(budget.Budget{})
		used, _ := reach(t, m, p, "one.example")
		other, _ := reach(t, m, p, "x.wild.example")
		if !used.Count(test.up, 2000) {
			t.Error("cut without a budget")
		}
		m.SetBudget(test.budget)
		if !other.Count(test.up, 1000) || other.Count(test.up, 1) {
			t.Error("a connection that stood before is not held to the budget")
		}
		if used.Count(test.up, 1) {
			t.Error("a connection over the budget goes on")
		}
		wantOver(t, "cut", used.Over(), test.over)
		_, over := reach(t, m, p, "one.example")
		wantOver(t, "a host over the budget", over, test.over)
		if f, over := reach(t, m, p, "wild.example"); over != "" || !f.Count(test.up, 1) {
			t.Errorf("another host: %q", over)
		}
	}
}

// A sandbox cannot make the gate remember without a bound; one without budgets does
// not notice it, until there is one that needs to know.
func TestMeterMemory(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Budgeted, "open")
	for _, b := range []budget.Budget{{HostUpload: 1, WildcardNames: budget.WildcardNames.Max()}, {}} {
		m := NewMeter(b)
		var last *ConnMeter
		over := ""
		for i := 0; i <= maxMetered; i++ {
			n := firewalltest.Name(t, fmt.Sprintf("h%d.example", i))
			if last, over = m.Reach(n, p.Decide(n, 443)); over != "" && i < maxMetered {
				t.Fatalf("%d: %q", i, over)
			}
		}
		if (over == "") != (b == budget.Budget{}) || len(m.hosts) > maxMetered || m.names > maxMetered {
			t.Errorf("%+v: %d hosts, %d names, %q", b, len(m.hosts), m.names, over)
		}
		if over != "" {
			continue
		}
		if !last.Count(true, 1) || !last.Count(false, 1) {
			t.Error("cut without a budget")
		}
		const wantHosts, wantNames = "over budget: more hosts than the gate counts", "over budget: more names than the gate counts"
		m.SetBudget(budget.Budget{HostDownload: 10})
		if last.Count(true, 1) {
			t.Error("a host without an account goes on under a budget of hosts")
		}
		wantOver(t, "cut", last.Over(), wantHosts)
		_, over = reach(t, m, p, "another.example")
		wantOver(t, "a host", over, wantHosts)
		m.SetBudget(budget.Budget{WildcardBytes: budget.WildcardBytes.Max()})
		_, over = reach(t, m, p, "another.example")
		wantOver(t, "a name", over, wantNames)
		if _, over = reach(t, m, p, "h1.example"); over != "" {
			t.Errorf("a name that was counted: %q", over)
		}
	}
}

// What a full account of a run holds.
func TestMeterSize(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Budgeted, "open")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	m := NewMeter(budget.Budget{})
	for i := range maxMetered {
		n := firewalltest.Name(t, fmt.Sprintf("h%049d.%s.example", i, strings.Repeat("x", 50)+strings.Repeat("."+strings.Repeat("x", 49), 2)))
		m.Reach(n, p.Decide(n, 443))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if n := int64(after.HeapAlloc) - int64(before.HeapAlloc); n > 12<<20 {
		t.Errorf("%d bytes", n)
	} else {
		t.Logf("%d bytes", n)
	}
	runtime.KeepAlive(m)
}

// A connection that came too fast is not open, and another budget of the same rate gives
// no second's connections again.
func TestMeterConnectionRate(t *testing.T) {
	const rate = 1e-9 // a limiter's tokens come back in years, not during a slow test
	m := NewMeter(budget.Budget{Connections: 1, ConnectionsPerSecond: 1})
	m.limits.Load().connections.SetLimit(rate)
	if over := m.Open(); over != "" {
		t.Fatalf("control: the first connection: %s", over)
	}
	m.Close()
	for range 3 {
		wantOver(t, "a second connection", m.Open(), "over budget: connectionsPerSecond 1")
	}
	m.SetBudget(budget.Budget{ConnectionsPerSecond: 1})
	wantOver(t, "after the same rate", m.Open(), "over budget: connectionsPerSecond 1")
	m.SetBudget(budget.Budget{ConnectionsPerSecond: 2})
	if over := m.Open(); over != "" {
		t.Errorf("after another rate: %s", over)
	}
}
