package gate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist"
	"sallyport/gate/page"
)

// ask gets a target of the page in cell n, as a process of the sandbox does.
func (g *testGate) ask(t *testing.T, n byte, target, accept string) (status int, kind, body string) {
	t.Helper()
	c := g.client(t, "tcp4", n, g.daemon.ports.http)
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\n\r\n", target, firewall.PageHost, accept)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
}

func (g *testGate) askWhy(t *testing.T, n byte, query string) page.Verdict {
	t.Helper()
	status, kind, body := g.ask(t, n, "/why?"+query, "application/json")
	var v page.Verdict
	if err := json.Unmarshal([]byte(body), &v); err != nil || status != 200 || kind != "application/json" {
		t.Fatalf("%d %s %s: %v", status, kind, body, err)
	}
	return v
}

// The page is there in each cell and tells of that cell's run alone; nothing of it
// leaves the gate.
//
// probe: X4
// oracle: what each cell reads, and the receipts
func TestPage(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "open"))
	g.wantResolved(t, 1, firewall.PageHost+".")
	g.wantResolved(t, 2, firewall.PageHost+".")
	g.wantNXDOMAIN(t, 1, "x."+firewall.PageHost+".")
	g.wantNXDOMAIN(t, 2, "sallyport.internal.")
	g.wantNXDOMAIN(t, 1, "secret-of-one.example.")
	if _, err := g.tunnel(t, 1, firewall.PageHost); err == nil {
		t.Error("the page answers TLS")
	}

	status, kind, body := g.ask(t, 1, "/", "*/*")
	if status != 200 || kind != "text/plain; charset=utf-8" {
		t.Fatalf("%d %s %s", status, kind, body)
	}
	policy, _ := g.daemon.Allowlist.Policy("strict")
	for _, want := range []string{`"strict"`, policy.Digest(), ".site.example 80, 443", "dns secret-of-one.example not_listed", "http://" + firewall.PageHost + "/why?"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
	_, _, body = g.ask(t, 2, "/?format=json", "")
	var o page.Overview
	if err := json.Unmarshal([]byte(body), &o); err != nil || o.Policy != "open" || !o.AnyHost || o.Generation != 1 {
		t.Errorf("%v: %s", err, body)
	}
	if strings.Contains(body, "secret-of-one") || strings.Contains(body, "run-1") {
		t.Errorf("a cell learns of another run: %s", body)
	}

	r := g.release(t, "c1").Receipt
	if n := count(r, account.KindHTTP, firewall.PageHost, firewall.ReasonPolicyPage); n != 1 {
		t.Errorf("receipt %+v", r)
	}
	if n := count(r, account.KindDNS, firewall.PageHost, firewall.ReasonPolicyPage); n != 1 {
		t.Errorf("receipt %+v", r)
	}
	for _, h := range r.Hosts {
		if h.Host == firewall.PageHost && (h.BytesUp != 0 || h.BytesDown != 0) {
			t.Errorf("bytes have left for the page: %+v", h)
		}
	}
}

// What the page says of a host is what the policy says, and what it advises to ask
// for allows the host.
func TestPageWhy(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.wantNXDOMAIN(t, 1, "new.example.com.")
	for _, test := range []struct {
		query  string
		reason firewall.Reason
		ask    string // is in it; "" is no advice
	}{
		{"host=www.site.example", firewall.ReasonListed, ""},
		{"host=WWW.Site.Example.&port=80", firewall.ReasonListed, ""},
		{"host=new.example.com", firewall.ReasonNotListed, "      - new.example.com\n"},
		{"host=new.example.com&port=80", firewall.ReasonNotListed, "{host: new.example.com, ports: [80]}"},
		{"host=new.example.com&port=22", firewall.ReasonNotListed, ""},
		{"host=cells.example&port=80", firewall.ReasonPortNotAllowed, "# add port 80 to the entry cells.example on line 4, and leave the rest of it as it is\n"},
		{"host=co.uk", firewall.ReasonNotListed, ""},
		{"host=dns.google", firewall.ReasonNotListed, "- dns.google\n"},
		{"host=metadata.google.internal", firewall.ReasonFloorName, ""},
		{"host=10.0.0.1", firewall.ReasonBadName, ""},
		{"host=" + firewall.PageHost, firewall.ReasonPolicyPage, ""},
		{"host=%1b%5b31m%0aforged", firewall.ReasonBadName, ""},
	} {
		v := g.askWhy(t, 1, test.query)
		if v.Host != firewall.PageHost && test.reason == firewall.ReasonNotListed && v.Reason == firewall.ReasonDoH {
			v.Reason = test.reason // of a resolver both are right
		}
		if v.Reason != test.reason || v.Says == "" || (test.ask == "") != (v.Ask == "") || !strings.Contains(v.Ask, test.ask) {
			t.Errorf("%s: %+v, want %s and %q", test.query, v, test.reason, test.ask)
		}
		if strings.HasPrefix(v.Ask, "policies:") {
			ps, err := allowlist.Parse(strings.NewReader("version: 1\n"+v.Ask), "patch")
			if err != nil {
				t.Fatal(err)
			}
			name, _ := firewall.ParseName(v.Host)
			if p, _ := ps.Policy("strict"); !p.Decide(name, v.Port).Allowed() {
				t.Errorf("%s: the advice does not allow it: %s", test.query, v.Ask)
			}
		}
		if _, _, text := g.ask(t, 1, "/why?"+test.query, "text/html"); strings.ContainsAny(text, "\x1b") || !strings.Contains(text, string(v.Reason)) && v.Reason != test.reason {
			t.Errorf("text of %s: %q", test.query, text)
		}
	}
	if v := g.askWhy(t, 1, "host=new.example.com"); len(v.Refusals) != 1 || v.Refusals[0].Kind != account.KindDNS {
		t.Errorf("refusals %+v", v.Refusals)
	}
}

// What the page is not asked rightly it refuses, and it answers only so often.
func TestPageIsStrict(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	for target, want := range map[string]int{
		"/": 200, "/why": 400, "/why?host=": 400, "/why?host=a.example&host=b.example": 400, "/why?host=a.example&port=x": 400,
		"/why?host=a.example&port=0": 400, "/why?host=a.example&port=70000": 400, "/why?host=a.example&x=y": 400, "/?host=a.example": 400,
		"/?format=xml": 400, "/why?host=%zz": 400, "/other": 404, "/why/": 404, "/../why": 404, "/why?host=" + strings.Repeat("a", 2000): 400,
	} {
		if status, _, body := g.ask(t, 1, target, "*/*"); status != want || body == "" {
			t.Errorf("%s: %d %s, want %d", firewall.Escape(target, 60), status, body, want)
		}
	}
	c := g.client(t, "tcp4", 1, g.daemon.ports.http)
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: 3\r\n\r\nabc", firewall.PageHost)
	if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v, %v", resp, err)
	}
	c = g.client(t, "tcp4", 1, g.daemon.ports.http)
	fmt.Fprintf(c, "HEAD / HTTP/1.1\r\nHost: %s\r\n\r\n", firewall.PageHost)
	if b, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") || !strings.HasSuffix(string(b), "\r\n\r\n") {
		t.Errorf("HEAD: %q, %v", b, err)
	}
	for range 20 * page.RequestBurst {
		if status, _, _ := g.ask(t, 1, "/", "*/*"); status == http.StatusTooManyRequests {
			return
		}
	}
	t.Error("the page answers at any rate")
}

// After a reload the page tells of the policy of now.
func TestPageAfterReload(t *testing.T) {
	g, path := reloading(t, false)
	g.lease(t, "c1", cellLease(1, "run-1", "other"))
	writeFile(t, path, narrowed)
	if _, err := g.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, body := g.ask(t, 1, "/", "*/*"); !strings.Contains(body, "everything is denied") || strings.Contains(body, "other.example") {
		t.Errorf("page of a policy that is gone:\n%s", body)
	}
	if v := g.askWhy(t, 1, "host=other.example"); v.Verdict != firewall.Deny || !strings.Contains(v.Says, "no longer has the policy") || v.Ask != "" {
		t.Errorf("%+v", v)
	}
}

// A refusal on port 80 says where to ask.
func TestRefusalNamesThePage(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	c := g.client(t, "tcp4", 1, g.daemon.ports.http)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: refused.example\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), "http://"+firewall.PageHost+"/why?host=refused.example&port=80\n") {
		t.Errorf("%s", b)
	}
}
