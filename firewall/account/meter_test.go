package account

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/budget"
	"sallyport/firewall/firewalltest"
)

func reach(t testing.TB, m *Meter, p *firewall.Policy, host string) (*ConnMeter, string) {
	t.Helper()
	n := firewalltest.Name(t, host)
	d := p.Decide(n, 443)
	if !d.Allowed() {
		t.Fatalf("%s: %+v", host, d)
	}
	return m.Reach(n, d)
}

func wantOver(t testing.TB, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Each budget of bytes lets the last byte pass and not one more.
func TestMeterBytes(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Budgeted, "none")
	for _, test := range []struct {
		word   string
		budget budget.Budget
		up     bool
		host   bool // it is of one host
	}{
		{"upload", budget.Budget{Upload: 1000}, true, false},
		{"download", budget.Budget{Download: 1000}, false, false},
		{"hostUpload", budget.Budget{HostUpload: 1000}, true, true},
		{"hostDownload", budget.Budget{HostDownload: 1000}, false, true},
	} {
		t.Run(test.word, func(t *testing.T) {
			m, spent := NewMeter(test.budget), "over budget: "+test.word+" 1kB"
			f, over := reach(t, m, p, "one.example")
			wantOver(t, "first", over, "")
			second, _ := reach(t, m, p, "one.example")
			if !f.Count(test.up, 400) || !second.Count(test.up, 599) || !f.Count(!test.up, 5000) || !f.Count(test.up, 1) {
				t.Error("cut within the budget")
			}
			wantOver(t, "the last byte", f.Over(), "")
			_, over = reach(t, m, p, "one.example")
			wantOver(t, "a spent budget", over, spent)
			if f.Count(test.up, 1) || second.Count(test.up, 1) {
				t.Error("not cut")
			}
			wantOver(t, "cut", f.Over(), spent)
			f, over = reach(t, m, p, "a.wild.example")
			if test.host != (over == "") || test.host && !f.Count(test.up, 1000) {
				t.Errorf("another host: %q", over)
			}
			if f, over := reach(t, NewMeter(test.budget), p, "one.example"); over != "" || !f.Count(test.up, 1000) {
				t.Errorf("another run: %q", over)
			}
		})
	}
}

func TestMeterNames(t *testing.T) {
	ps := firewalltest.Policies(t, firewalltest.Budgeted)
	none, _ := ps.Policy("none")
	open, _ := ps.Policy("open")
	type step struct{ host, over string }
	names, bytes := "over budget: wildcardNames 2", "over budget: wildcardBytes 10B"
	for name, test := range map[string]struct {
		budget budget.Budget
		policy *firewall.Policy
		steps  []step
	}{
		"names": {budget.Budget{WildcardNames: 2}, none, []step{
			{"wild.example", ""}, {"one.example", ""}, // the file wrote these
			{"a.wild.example", ""}, {"b.a.wild.example", ""}, {"c.wild.example", names},
			{"a.wild.example", ""}, {"B.A.wild.example.", ""}, {"d.wild.example", names}, {"one.example", ""}, {"wild.example", ""},
		}},
		"bytes": {budget.Budget{WildcardBytes: 10}, none, []step{
			{"abcd.wild.example", ""}, {"ab.def.wild.example", ""}, {"abcd.wild.example", ""}, {"x.wild.example", bytes},
			{"abcd.wild.example", ""}, {"one.example", ""},
		}},
		"one long name": {budget.Budget{WildcardBytes: 10}, none, []step{{"abcdefghijk.wild.example", bytes}, {"abcdefghij.wild.example", ""}}},
		"any":           {budget.Budget{WildcardNames: 2}, open, []step{{"a.example", ""}, {"b.example", ""}, {"c.example", names}, {"a.example", ""}}},
		"no budget":     {budget.Budget{Upload: 1}, none, []step{{"a.wild.example", ""}, {"b.wild.example", ""}, {"c.wild.example", ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, other := NewMeter(test.budget), NewMeter(test.budget)
			for i, s := range test.steps {
				_, over := reach(t, m, test.policy, s.host)
				wantOver(t, fmt.Sprintf("step %d, %s", i, s.host), over, s.over)
			}
			_, over := reach(t, other, test.policy, test.steps[0].host)
			wantOver(t, "another run", over, test.steps[0].over)
		})
	}
}

// One entry on two ports is one wildcard, two entries are two.
func TestMeterNamesByEntry(t *testing.T) {
	p := firewalltest.Policy(t, `
version: 1
policies:
  p: {allow: [{host: .a.example, ports: [80, 443]}, .b.example, .deep.a.example]}
`, "p")
	m := NewMeter(budget.Budget{WildcardNames: 1})
	for _, s := range []struct {
		host string
		port uint16
		ok   bool
	}{
		{"x.a.example", 443, true}, {"x.a.example", 80, true}, {"y.a.example", 80, false},
		{"y.b.example", 443, true}, {"z.deep.a.example", 443, true}, {"y.deep.a.example", 443, false},
	} {
		n := firewalltest.Name(t, s.host)
		if _, over := m.Reach(n, p.Decide(n, s.port)); (over == "") != s.ok {
			t.Errorf("%s:%d: %q", s.host, s.port, over)
		}
	}
}

func TestMeterConnections(t *testing.T) {
	m, other := NewMeter(budget.Budget{Connections: 2}), NewMeter(budget.Budget{Connections: 2})
	for i, want := range []string{"", "", "over budget: connections 2", "over budget: connections 2"} {
		wantOver(t, fmt.Sprint(i), m.Open(), want)
	}
	wantOver(t, "another run", other.Open(), "")
	m.Close()
	wantOver(t, "after one has ended", m.Open(), "")
	wantOver(t, "full again", m.Open(), "over budget: connections 2")
}

func TestMeterRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := budget.Budget{ConnectionsPerSecond: 5, QueriesPerSecond: 5}
		m, other := NewMeter(b), NewMeter(b)
		count := func() (connections, queries int) {
			for range 100 {
				if connections%2 == 0 && m.Open() == "" {
					m.Close()
					connections++
				} else if connections%2 == 1 && m.Further() == "" {
					connections++
				}
				if m.Query() {
					queries++
				}
			}
			return connections, queries
		}
		for range 3 {
			if c, q := count(); c != 5 || q != 5 {
				t.Errorf("%d connections and %d queries at once, want 5", c, q)
			}
			wantOver(t, "the rate", m.Open(), "over budget: connectionsPerSecond 5")
			wantOver(t, "the rate of further ones", m.Further(), "over budget: connectionsPerSecond 5")
			time.Sleep(time.Second)
		}
		if other.Open() != "" || !other.Query() {
			t.Error("another run is over budget")
		}
		time.Sleep(time.Hour)
		if c, q := count(); c != 5 || q != 5 {
			t.Errorf("%d connections and %d queries after an hour, want 5", c, q)
		}
	})
}

// A zero budget limits nothing.
func TestMeterWithoutBudget(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Budgeted, "open")
	m := NewMeter(budget.Budget{})
	for i := range 1000 {
		f, over := reach(t, m, p, fmt.Sprintf("h%d.example", i))
		if m.Open() != "" || m.Further() != "" || !m.Query() || over != "" || !f.Count(true, 1<<40) || !f.Count(false, 1<<40) {
			t.Fatalf("%d: %q", i, over)
		}
	}
	if len(m.hosts) != 1000 || m.names != 1000 {
		t.Errorf("%d hosts and %d names are known to budgets to come, want 1000", len(m.hosts), m.names)
	}
}

// Used at once by many, nothing of the account is lost.
func TestMeterConcurrent(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Budgeted, "none")
	m := NewMeter(budget.Budget{Upload: 100_000, HostUpload: 100_000, WildcardNames: 10, Connections: 3})
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken, cut := 0, 0
	for i := range 20 {
		wg.Go(func() {
			if m.Open() == "" {
				m.Close()
			}
			n := firewalltest.Name(t, fmt.Sprintf("h%d.wild.example", i))
			f, over := m.Reach(n, p.Decide(n, 443))
			if over != "" {
				return
			}
			for f.Count(true, 10) {
				mu.Lock()
				taken += 10
				mu.Unlock()
			}
			mu.Lock()
			cut++
			mu.Unlock()
		})
	}
	wg.Wait()
	if taken != 100_000 || cut == 0 || cut > 10 || m.open.Load() != 0 {
		t.Errorf("%d bytes within the budget, %d connections cut, %d open", taken, cut, m.open.Load())
	}
}

func TestMeterAllocations(t *testing.T) {
	p := firewalltest.Policy(t, firewalltest.Budgeted, "strict")
	n := firewalltest.Name(t, "a.wild.example")
	m := NewMeter(budget.Budget{Upload: 1 << 50, HostUpload: 1 << 50, WildcardNames: 5, Connections: 5, ConnectionsPerSecond: 1e6, QueriesPerSecond: 1e6})
	f, over := m.Reach(n, p.Decide(n, 443))
	if over != "" {
		t.Fatal(over)
	}
	for name, do := range map[string]struct {
		most float64
		f    func()
	}{
		"Decide":         {0, func() { p.Decide(n, 443) }},
		"Count":          {0, func() { f.Count(true, 1) }},
		"Query":          {0, func() { m.Query() }},
		"Open and Close": {0, func() { m.Open(); m.Close() }},
		"Reach":          {1, func() { m.Reach(n, p.Decide(n, 443)) }}, // the ConnMeter
	} {
		if got := testing.AllocsPerRun(1000, do.f); got > do.most {
			t.Errorf("%s allocates %v times, want %v", name, got, do.most)
		}
	}
}

func BenchmarkMeter(b *testing.B) {
	p := firewalltest.Policy(b, firewalltest.Budgeted, "none")
	n := firewalltest.Name(b, "a.wild.example")
	d := p.Decide(n, 443)
	m := NewMeter(budget.Budget{Upload: 1 << 50, HostUpload: 1 << 50, WildcardNames: 5, Connections: 1e6, ConnectionsPerSecond: 1e6, QueriesPerSecond: 1e6})
	f, _ := m.Reach(n, d)
	b.Run("count", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.Count(true, 1)
		}
	})
	b.Run("connection", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = m.Open()
			_, _ = m.Reach(n, d)
			m.Close()
		}
	})
	b.Run("query", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.Query()
		}
	})
}
