package sniproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/budget"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// budgetCell is a cell whose run has a budget, and a canary on its far side.
func budgetCell(t *testing.T, b budget.Budget) (*cell, *testnet.Canary) {
	t.Helper()
	return newTunnelCell(t, func(s *Server) { s.Meter = account.NewMeter(b) })
}

// wantBudget checks the record of a connection that went over a budget.
func wantBudget(t *testing.T, r account.Record, detail string) {
	t.Helper()
	if r.Verdict != firewall.Deny || r.Reason != firewall.ReasonBudget || r.Detail != detail {
		t.Errorf("record %+v; want a budget and %q", r, detail)
	}
}

// The last byte of each budget passes a tunnel; the one after it cuts it.
//
// probe: X5
// oracle: both ends of the tunnel, to the byte, and the record
func TestBudgetTunnel(t *testing.T) {
	const room = 1000
	hello := int64(len(testnet.HelloFor("site.example")))
	for _, test := range []struct {
		name   string
		budget budget.Budget
		up     bool
		detail string
	}{
		{"upload", budget.Budget{Upload: hello + room}, true, fmt.Sprintf("over budget: upload %.3fkB", float64(hello+room)/1000)},
		{"download", budget.Budget{Download: room}, false, "over budget: download 1kB"},
		{"hostUpload", budget.Budget{HostUpload: hello + room}, true, fmt.Sprintf("over budget: hostUpload %.3fkB", float64(hello+room)/1000)},
		{"hostDownload", budget.Budget{HostDownload: room}, false, "over budget: hostDownload 1kB"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeak(t)
			c, k := budgetCell(t, test.budget)
			client, up := c.open(k)
			from, to := up, client
			if test.up {
				from, to = client, up
			}
			testnet.Send(t, from, make([]byte, room-1))
			testnet.ReadN(t, to, room-1)
			testnet.Send(t, from, []byte{1})
			testnet.ReadN(t, to, 1)
			testnet.Send(t, to, []byte("the other way is free"))
			testnet.ReadN(t, from, 21)

			testnet.Send(t, from, []byte{2})
			for _, conn := range []net.Conn{client, up} {
				if n, err := io.Copy(io.Discard, conn); err == nil || n > 1 {
					t.Errorf("%d bytes, %v; want a cut", n, err)
				}
			}
			r := c.Last(1)
			wantBudget(t, r, test.detail)
			if sum := r.BytesUp + r.BytesDown; sum != hello+room+21+1 || r.Rule == "" || !r.Upstream.IsValid() {
				t.Errorf("record %+v: %d bytes", r, sum)
			}

			// The next one is refused with an alert, and not even looked up.
			asked := c.Resolver.Asked.Load()
			again := testnet.Dial(t, c.tls)
			testnet.Send(t, again, testnet.HelloFor("site.example"))
			if got, err := io.ReadAll(again); err != nil || !bytes.Equal(got, refusal.AccessDenied.Record()) {
				t.Errorf("got %x, %v", got, err)
			}
			wantBudget(t, c.Last(2), test.detail)
			if c.Resolver.Asked.Load() != asked || k.Count.Load() != 1 {
				t.Error("a run over budget reached the outside")
			}

			// Another host has its own account, the total has not.
			other := testnet.Dial(t, c.tls)
			testnet.Send(t, other, testnet.HelloFor("other.example"))
			if strings.HasPrefix(test.name, "host") {
				testnet.ReadN(t, k.Next(t), int(hello)+1)
			} else {
				wantBudget(t, c.Last(3), test.detail)
			}
		})
	}
}

// A tunnel that ends within its budgets ends as one without.
func TestBudgetTunnelWithin(t *testing.T) {
	hello := int64(len(testnet.HelloFor("site.example")))
	c, k := budgetCell(t, budget.Budget{Upload: hello + 5, HostUpload: hello + 5, Download: 5, HostDownload: 5})
	client, up := c.open(k)
	testnet.Send(t, client, []byte("12345"))
	testnet.ReadN(t, up, 5)
	testnet.Send(t, up, []byte("12345"))
	testnet.ReadN(t, client, 5)
	client.Close()
	up.Close()
	if r := c.Last(1); r.Verdict != firewall.Allow || r.Reason != firewall.ReasonListed || r.BytesUp != hello+5 || r.BytesDown != 5 {
		t.Errorf("record %+v", r)
	}
}

// What the kernel moves is bounded as well: the piece that would go over the budget,
// whose size is a pipe's at most, is counted and not passed on.
func TestBudgetTunnelBulk(t *testing.T) {
	testnet.NoLeak(t)
	const limit, pipeBytes = 1 << 20, 1 << 20
	c, k := budgetCell(t, budget.Budget{Upload: limit})
	client, up := c.open(k)
	go func() {
		for b := make([]byte, 256<<10); ; {
			if _, err := client.Write(b); err != nil {
				return
			}
		}
	}()
	n, _ := io.Copy(io.Discard, up)
	r := c.Last(1)
	wantBudget(t, r, "over budget: upload 1MiB")
	if r.BytesUp <= limit || r.BytesUp > limit+pipeBytes || n > limit {
		t.Errorf("%d bytes arrived and %d were counted, of a budget of %d", n, r.BytesUp, limit)
	}
}

// A hello that is over the budget itself does not leave.
func TestBudgetHello(t *testing.T) {
	hello := testnet.HelloFor("site.example")
	for _, room := range []int{0, -1} {
		c, k := budgetCell(t, budget.Budget{HostUpload: int64(len(hello) + room)})
		client := testnet.Dial(t, c.tls)
		testnet.Send(t, client, hello)
		up := k.Next(t)
		if room == 0 {
			testnet.ReadN(t, up, len(hello))
			continue
		}
		if got, _ := io.ReadAll(up); len(got) > 0 {
			t.Errorf("%d bytes of the hello left", len(got))
		}
		if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, refusal.AccessDenied.Record()) {
			t.Errorf("the client got %x, %v", got, err)
		}
		wantBudget(t, c.Last(1), fmt.Sprintf("over budget: hostUpload %dB", len(hello)-1))
	}
}

// Names below an entry carry data to whoever resolves them: beyond the budget
// they are not looked up, on either port.
//
// probe: X5
// oracle: the count of look-ups, and the record
func TestBudgetNames(t *testing.T) {
	for _, service := range []string{"tls", "http"} {
		for name, test := range map[string]struct {
			budget budget.Budget
			detail string
		}{
			"names": {budget.Budget{WildcardNames: 2}, "over budget: wildcardNames 2"},
			"bytes": {budget.Budget{WildcardBytes: 9}, "over budget: wildcardBytes 9B"},
		} {
			t.Run(service+" "+name, func(t *testing.T) {
				c, k := budgetCell(t, test.budget)
				c.Origin("127.0.0.1:80", k.Addr)
				n := 0
				ask := func(host string) account.Record {
					if n++; service == "tls" {
						conn := testnet.Dial(t, c.tls)
						testnet.Send(t, conn, testnet.HelloFor(host))
						_, _ = io.ReadAll(conn)
					} else {
						conn := testnet.Dial(t, c.http)
						testnet.Send(t, conn, []byte("GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"))
						_, _ = io.ReadAll(conn)
					}
					return c.Last(n)
				}
				// The names do not resolve, and count all the same.
				for _, host := range []string{"6e6f.site.example", "a.b.c.site.example", "6e6f.site.example"} {
					if r := ask(host); r.Reason != firewall.ReasonResolve {
						t.Errorf("%s: %+v", host, r)
					}
				}
				asked := c.Resolver.Asked.Load()
				if asked != 3 {
					t.Errorf("%d look-ups within the budget, want 3", asked)
				}
				wantBudget(t, ask("7.site.example"), test.detail)
				if c.Resolver.Asked.Load() != asked {
					t.Error("a name over the budget was looked up")
				}
				if r := ask("a.b.c.SITE.example"); r.Reason != firewall.ReasonResolve {
					t.Errorf("a name that was counted: %+v", r)
				}
			})
		}
	}
}

// The entry's own name needs no budget.
func TestBudgetNamesApex(t *testing.T) {
	c, k := budgetCell(t, budget.Budget{WildcardNames: 1, WildcardBytes: 1})
	c.Resolver.Set("x.site.example", "127.0.0.1")
	c.open(k)
	testnet.Send(t, testnet.Dial(t, c.tls), testnet.HelloFor("x.site.example"))
	k.Next(t)
	c.open(k)
}

func TestBudgetConnections(t *testing.T) {
	c, k := budgetCell(t, budget.Budget{Connections: 2})
	a, _ := c.open(k)
	idle := testnet.Dial(t, c.http)
	testnet.Eventually(t, "two connections", func() bool { return c.server.Open() == 2 })
	for i, addr := range []string{c.tls, c.http} {
		if got, _ := testnet.Knock(addr); len(got) > 0 {
			t.Errorf("got %q", got)
		}
		wantBudget(t, c.Last(i+1), "over budget: connections 2")
	}
	testnet.Reset(a)
	idle.Close()
	testnet.Eventually(t, "both to end", func() bool { return c.server.Open() == 0 })
	c.open(k)
}

// A run that floods spends what is its own, and another run does not notice.
//
// probe: X5, D20
// oracle: the records of the flood, and the tunnels of another run
func TestBudgetConnectionRate(t *testing.T) {
	const perSecond = 3
	b := budget.Budget{ConnectionsPerSecond: perSecond}
	flooded, _ := budgetCell(t, b)
	quiet, k := budgetCell(t, b)
	const flood = 40
	start := time.Now()
	for range flood {
		conn, err := net.Dial("tcp", flooded.tls)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	sum := func() (allowed, refused int) {
		for _, r := range flooded.Records() {
			if n := int(max(r.Count, 1)); r.Reason == firewall.ReasonBudget {
				refused += n
			} else {
				allowed += n
			}
		}
		return allowed, refused
	}
	took := time.Since(start)
	testnet.Eventually(t, "every connection to be on record", func() bool { allowed, refused := sum(); return allowed+refused == flood })
	allowed, refused := sum()
	if most := perSecond * (2 + int(took/time.Second)); allowed < perSecond || allowed > most {
		t.Errorf("%d connections passed, want %d to %d; %d were refused", allowed, perSecond, most, refused)
	}
	n := len(flooded.Records())
	if most := allowed + 4 + int(time.Since(start)/time.Second); n > most {
		t.Errorf("%d records, want %d at most", n, most)
	}
	for range perSecond {
		quiet.open(k)
	}
}

// On a connection that a client keeps, each further one that its requests need to
// the outside is on the rate as well: neither look-ups nor dials come faster. Requests
// to the same host go over the connection that there is, and need none.
//
// probe: X5
// oracle: the counts of look-ups and of dials, the web server on the far side, and the
// record of the refused request
func TestBudgetConnectionRateKept(t *testing.T) {
	const perSecond = 3
	ask := func(host string) []byte { return []byte("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n") }
	c := newCell(t, "strict", func(s *Server) { s.Meter = account.NewMeter(budget.Budget{ConnectionsPerSecond: perSecond}) })
	o := testcell.NewOrigin(t, c.Cell, testcell.Echo)
	conn := testnet.Dial(t, c.http)
	br, start := bufio.NewReader(conn), time.Now()
	read := func() (status int, body string) {
		resp, err := http.ReadResponse(br, nil)
		body = testcell.BodyOf(t, resp, err)
		return resp.StatusCode, body
	}
	const same = 50
	for i := range same {
		testnet.Send(t, conn, ask("site.example"))
		if status, body := read(); status != 200 {
			t.Fatalf("request %d to the same host: %d %q", i, status, body)
		}
	}
	if n := len(c.Dials()); n != 1 || o.Conns() != 1 {
		t.Fatalf("%d dials for one host", n)
	}
	passed, last := 1, ""
	for status := 200; ; passed++ {
		host := fmt.Sprintf("h%d.site.example", passed)
		c.Resolver.Set(host, "127.0.0.1")
		testnet.Send(t, conn, ask(host))
		if status, last = read(); status != 200 {
			break
		}
		if most := perSecond * (2 + int(time.Since(start)/time.Second)); passed > most {
			t.Fatalf("%d connections to the outside, want %d at most", passed, most)
		}
	}
	if passed < perSecond || !strings.Contains(last, "budget_exceeded") || !strings.Contains(last, "over budget: connectionsPerSecond 3") {
		t.Errorf("after %d: %q", passed, last)
	}
	if d, l := len(c.Dials()), int(c.Resolver.Asked.Load()); d != passed || l != passed || o.Conns() != passed {
		t.Errorf("%d dials and %d look-ups, want %d", d, l, passed)
	}
	wantBudget(t, c.Last(same+passed), "over budget: connectionsPerSecond 3")
}

// Two runs do not spend from one account.
func TestBudgetIsOfOneRun(t *testing.T) {
	hello := int64(len(testnet.HelloFor("site.example")))
	b := budget.Budget{Upload: hello, HostUpload: hello, Connections: 1, WildcardNames: 1}
	for range 2 {
		c, k := budgetCell(t, b)
		client, _ := c.open(k)
		testnet.Send(t, client, []byte("x"))
		if r := c.Last(1); r.Reason != firewall.ReasonBudget {
			t.Errorf("record %+v", r)
		}
	}
}

// Without a meter of the caller's, a server counts on the policy's budget; a
// change of policy changes the budget and not what was used.
func TestBudgetOfPolicy(t *testing.T) {
	text := strings.Replace(testcell.Allowlist, "strict: {allow: [web]}", "strict: {allow: [web], budgets: {connections: 1}}", 1)
	wide := strings.Replace(testcell.Allowlist, "strict: {allow: [web]}", "strict: {allow: [web], budgets: {connections: 2}}", 1)
	parse := func(text string) *firewall.Policy {
		all, err := allowlist.Parse(strings.NewReader(text), "allowlist.yaml")
		if err != nil {
			t.Fatal(err)
		}
		p, _ := all.Policy("strict")
		return p
	}
	current := parse(text)
	c, k := newTunnelCell(t, func(s *Server) { s.Current = func() *firewall.Policy { return current } })
	c.open(k)
	_, _ = testnet.Knock(c.tls)
	wantBudget(t, c.Last(1), "over budget: connections 1")
	c.End()

	c, k = newTunnelCell(t, func(s *Server) { s.Policy = parse(text) })
	c.open(k)
	_, _ = testnet.Knock(c.tls)
	wantBudget(t, c.Last(1), "over budget: connections 1")
	c.server.Metered().SetBudget(parse(wide).Budget())
	c.open(k)
	_, _ = testnet.Knock(c.tls)
	wantBudget(t, c.Last(2), "over budget: connections 2")
}

// exchangeSize is what one request and its response come to, in bytes.
func exchangeSize(t *testing.T, request func(*cell) (*http.Response, error), handler http.HandlerFunc) (up, down int64) {
	t.Helper()
	c := newCell(t, "strict", nil)
	testcell.NewOrigin(t, c.Cell, handler)
	resp, err := request(c)
	testcell.BodyOf(t, resp, err)
	r := c.Last(1)
	return r.BytesUp, r.BytesDown
}

// A request that fits passes; one that is a byte too long is refused, and the
// upstream never has the whole of it.
func TestBudgetHTTPUpload(t *testing.T) {
	const size = 300_000
	for name, body := range map[string]func() io.Reader{
		"length":  func() io.Reader { return bytes.NewReader(make([]byte, size)) },
		"chunked": func() io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, size))) },
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeak(t)
			request := func(c *cell) (*http.Response, error) {
				return c.client().Post("http://site.example/up", "text/plain", body())
			}
			// Chunks are framed anew as they come: give the head of one some room.
			up, _ := exchangeSize(t, request, testcell.Echo)
			for _, test := range []struct {
				detail string
				budget func(int64) budget.Budget
			}{
				{"over budget: upload ", func(n int64) budget.Budget { return budget.Budget{Upload: n} }},
				{"over budget: hostUpload ", func(n int64) budget.Budget { return budget.Budget{HostUpload: n} }},
			} {
				room := up
				if name == "chunked" {
					room += 2000
				}
				c := newCell(t, "strict", func(s *Server) { s.Meter = account.NewMeter(test.budget(room)) })
				testcell.NewOrigin(t, c.Cell, testcell.Echo)
				resp, err := request(c)
				if got := testcell.BodyOf(t, resp, err); resp.StatusCode != 200 || len(got) < size {
					t.Fatalf("within the budget: %d, %d bytes", resp.StatusCode, len(got))
				}
				if r := c.Last(1); r.Verdict != firewall.Allow {
					t.Errorf("within the budget: %+v", r)
				}

				room = up - 1
				if name == "chunked" {
					room = size - 1
				}
				c = newCell(t, "strict", func(s *Server) { s.Meter = account.NewMeter(test.budget(room)) })
				whole := make(chan bool, 1)
				testcell.NewOrigin(t, c.Cell, func(w http.ResponseWriter, r *http.Request) {
					_, err := io.Copy(io.Discard, r.Body)
					whole <- err == nil
				})
				// The client learns why, unless it was still sending when it was cut.
				if resp, err := request(c); err == nil {
					if got := testcell.BodyOf(t, resp, err); resp.StatusCode != 403 || !strings.Contains(got, "budget_exceeded") || !strings.Contains(got, test.detail) {
						t.Errorf("got %d %q", resp.StatusCode, got)
					}
				}
				if <-whole {
					t.Error("the upstream has the whole body")
				}
				r := c.Last(1)
				if !strings.HasPrefix(r.Detail, test.detail) || r.BytesUp > room {
					t.Errorf("budget %d, record %+v", room, r)
				}
				wantBudget(t, r, r.Detail)
			}
		})
	}
}

func TestBudgetHTTPDownload(t *testing.T) {
	testnet.NoLeak(t)
	request := func(c *cell) (*http.Response, error) { return c.client().Get("http://site.example/") }
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "200000")
		_, _ = w.Write(make([]byte, 200_000))
	}
	_, down := exchangeSize(t, request, handler)
	for _, over := range []int64{0, 1} {
		for detail, b := range map[string]budget.Budget{
			"over budget: download ":     {Download: down - over},
			"over budget: hostDownload ": {HostDownload: down - over},
		} {
			c := newCell(t, "strict", func(s *Server) { s.Meter = account.NewMeter(b) })
			testcell.NewOrigin(t, c.Cell, handler)
			resp, err := request(c)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			r := c.Last(1)
			if over == 0 {
				if err != nil || len(got) != 200_000 || r.Verdict != firewall.Allow {
					t.Errorf("%s: %d bytes, %v, %+v", detail, len(got), err, r)
				}
				continue
			}
			if err == nil || len(got) >= 200_000 || !strings.HasPrefix(r.Detail, detail) {
				t.Errorf("%s: %d bytes, %v", detail, len(got), err)
			}
			wantBudget(t, r, r.Detail)
		}
	}
}

// A response without an end is cut where the budget ends, not after it.
func TestBudgetHTTPStream(t *testing.T) {
	testnet.NoLeak(t)
	const limit = 1_000_000
	c := newCell(t, "strict", func(s *Server) { s.Meter = account.NewMeter(budget.Budget{Download: limit}) })
	testcell.NewOrigin(t, c.Cell, func(w http.ResponseWriter, r *http.Request) {
		for sent := 0; sent < 100*limit; sent += 1000 {
			if _, err := w.Write(make([]byte, 1000)); err != nil {
				return
			}
		}
	})
	resp, err := c.client().Get("http://site.example/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || n > limit {
		t.Errorf("the client got %d bytes, %v", n, err)
	}
	r := c.Last(1)
	wantBudget(t, r, "over budget: download 1MB")
	if r.BytesDown > limit+64<<10 {
		t.Errorf("%d bytes were taken from the upstream", r.BytesDown)
	}
}

// A connection that is kept alive does not outlive its run's budget.
func TestBudgetHTTPKeepAlive(t *testing.T) {
	request := func(c *cell) (*http.Response, error) { return c.client().Get("http://site.example/") }
	up, _ := exchangeSize(t, request, testcell.Echo)
	c := newCell(t, "strict", func(s *Server) { s.Meter = account.NewMeter(budget.Budget{Upload: 2 * up}) })
	o := testcell.NewOrigin(t, c.Cell, testcell.Echo)
	client := c.client()
	for i, want := range []int{200, 200, 403, 403} {
		resp, err := client.Get("http://site.example/")
		got := testcell.BodyOf(t, resp, err)
		if resp.StatusCode != want || want == 403 && !strings.Contains(got, "over budget: upload") {
			t.Errorf("request %d: %d %q", i, resp.StatusCode, got)
		}
	}
	if len(o.Requests()) != 2 || o.Conns() != 1 {
		t.Errorf("the upstream got %q over %d connections", o.Requests(), o.Conns())
	}
	for _, r := range c.Wait(4)[2:] {
		wantBudget(t, r, r.Detail)
	}
}
