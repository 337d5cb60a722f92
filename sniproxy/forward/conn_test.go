package forward

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// TestForwardRealClient has an unmodified client make requests of all kinds.
//
// probe: S22
// oracle: a real web server on the far side, which notes each request; the records
func TestForwardRealClient(t *testing.T) {
	testnet.NoLeak(t)
	c := newCell(t, "strict", nil)
	o := testcell.NewOrigin(t, c.Cell, testcell.Echo)
	client := c.client()

	resp, err := client.Get("http://site.example/a//b%2fc?q=1&r=%zz")
	if got := testcell.BodyOf(t, resp, err); got != "GET site.example " || resp.StatusCode != 200 {
		t.Errorf("got %d %q", resp.StatusCode, got)
	}
	r := c.Last(1)
	if !(r.Kind == account.KindHTTP && r.Host == "site.example" && r.Port == 80 && r.Verdict == firewall.Allow &&
		r.Reason == firewall.ReasonListed && r.Rule == ".site.example" && r.BytesUp > 40 && r.BytesDown > 40 &&
		r.Upstream == netip.MustParseAddrPort("127.0.0.1:80")) {
		t.Errorf("record %+v", r)
	}
	resp, err = client.Post("http://Site.Example:80/p", "text/plain", strings.NewReader("sized"))
	if got := testcell.BodyOf(t, resp, err); got != "POST site.example sized" {
		t.Errorf("got %q", got)
	}
	resp, err = client.Post("http://site.example/p", "text/plain", io.MultiReader(strings.NewReader("in "), strings.NewReader("chunks")))
	if got := testcell.BodyOf(t, resp, err); got != "POST site.example in chunks" {
		t.Errorf("got %q", got)
	}
	resp, err = client.Head("http://other.example/h")
	if got := testcell.BodyOf(t, resp, err); got != "" || resp.ContentLength != 19 {
		t.Errorf("got %q of %d", got, resp.ContentLength)
	}
	big := strings.Repeat("0123456789abcdef", 1<<16)
	resp, err = client.Post("http://site.example/big", "text/plain", strings.NewReader(big))
	if got := testcell.BodyOf(t, resp, err); got != "POST site.example "+big {
		t.Errorf("got %d bytes", len(got))
	}
	c.Wait(5)
	want := []string{
		"GET site.example /a//b%2fc?q=1&r=%zz", "POST site.example /p", "POST site.example /p",
		"HEAD other.example /h", "POST site.example /big",
	}
	if got := o.Requests(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the origin saw %q, want %q", got, want)
	}
	c.End()
	client.CloseIdleConnections()
	o.Close()
}

// A refused request gets an answer that says who refused it, and why.
//
// probe: H1, H10, R11
// oracle: a web server on the far side that sees the control only, the count of look-
// ups, the status and the record
func TestForwardRefusals(t *testing.T) {
	tests := []struct {
		url    string
		status int
		reason firewall.Reason
		looks  int64 // look-ups
	}{
		{"http://evil.example/x", 403, firewall.ReasonNotListed, 0},
		{"http://tlsonly.example/", 403, firewall.ReasonPortNotAllowed, 0},
		{"http://metadata.google.internal/computeMetadata/v1/", 403, firewall.ReasonFloorName, 0},
		{"http://169.254.169.254/latest/meta-data/", 400, firewall.ReasonBadName, 0},
		{"http://[::1]/", 400, firewall.ReasonBadName, 0},
		{"http://2130706433/", 400, firewall.ReasonBadName, 0},
		{"http://localhost/", 400, firewall.ReasonBadName, 0},
		{"http://public.example/", 403, firewall.ReasonAddress, 1},
		{"http://absent.site.example/", 502, firewall.ReasonResolve, 1},
		{"http://down.site.example/", 502, firewall.ReasonDial, 1},
		{"http://site.example:8080/", 400, firewall.ReasonBadRequest, 0},
	}
	for _, tt := range tests {
		t.Run(tt.url, func(t *testing.T) {
			c := newCell(t, "strict", nil)
			o := testcell.NewOrigin(t, c.Cell, testcell.Echo)
			c.Resolver.Set("public.example", "10.0.0.1")
			c.Resolver.Set("down.site.example", "127.0.0.9")
			resp, err := c.client().Get(tt.url)
			got := testcell.BodyOf(t, resp, err)
			host := resp.Request.URL.Host
			if resp.StatusCode != tt.status || !strings.Contains(got, "sallyport") || !strings.Contains(got, string(tt.reason)) ||
				tt.reason != firewall.ReasonBadRequest && !strings.Contains(got, host) || !resp.Close {
				t.Errorf("%d %q", resp.StatusCode, got)
			}
			if r := c.Last(1); r.Verdict != firewall.Deny || r.Reason != tt.reason {
				t.Errorf("record %+v", r)
			}
			if n := c.Resolver.Asked.Load(); n != tt.looks {
				t.Errorf("%d look-ups, want %d", n, tt.looks)
			}
			resp, err = c.client().Get("http://site.example/control")
			testcell.BodyOf(t, resp, err)
			if got := fmt.Sprint(o.Requests()); got != "[GET site.example /control]" {
				t.Errorf("the origin saw %s", got)
			}
		})
	}
}

// Requests that two readers could take differently, and such as are not for a
// forwarder: none is looked up or dialled.
//
// oracle: a web server on the far side that sees the control only, the count of look-
// ups, the status, and the record with its reason
func TestForwardRefusesMalformed(t *testing.T) {
	const host = "Host: site.example\r\n"
	get := func(fields string) string { return "GET / HTTP/1.1\r\n" + host + fields + "\r\n" }
	const bad, name, limit = firewall.ReasonBadRequest, firewall.ReasonBadName, firewall.ReasonLimit
	post := func(rest string) string { return "POST / HTTP/1.1\r\n" + host + rest }
	tests := []struct {
		name   string
		raw    string
		status int // 0: closed without an answer
		reason firewall.Reason
	}{
		// probe: H2
		{"no Host", "GET / HTTP/1.1\r\n\r\n", 400, bad},
		{"empty Host", "GET / HTTP/1.1\r\nHost: \r\n\r\n", 400, name},
		// probe: H3
		{"two Hosts", get(host), 400, bad},
		{"two different Hosts", get("host: evil.example\r\n"), 400, bad},
		{"Host with a comma", "GET / HTTP/1.1\r\nHost: site.example, evil.example\r\n\r\n", 400, name},
		{"Host with userinfo", "GET / HTTP/1.1\r\nHost: a@site.example\r\n\r\n", 400, name},
		{"Host with a path", "GET / HTTP/1.1\r\nHost: site.example/x\r\n\r\n", 400, name},
		{"Host with a space", "GET / HTTP/1.1\r\nHost: site.example evil.example\r\n\r\n", 400, name},
		{"Host with NUL", "GET / HTTP/1.1\r\nHost: site.example\x00evil\r\n\r\n", 400, bad},
		// probe: H10
		{"Host with another port", "GET / HTTP/1.1\r\nHost: site.example:443\r\n\r\n", 400, bad},
		{"Host with an odd port", "GET / HTTP/1.1\r\nHost: site.example:080\r\n\r\n", 400, bad},
		{"Host with an empty port", "GET / HTTP/1.1\r\nHost: site.example:\r\n\r\n", 400, name},
		// probe: H3
		{"Host in UTF-8", "GET / HTTP/1.1\r\nHost: s\u0131te.example\r\n\r\n", 400, name},
		{"space before the colon", "GET / HTTP/1.1\r\nHost : site.example\r\n\r\n", 400, bad},
		// probe: H3, H7
		{"folded Host", "GET / HTTP/1.1\r\nHost:\r\n site.example\r\n\r\n", 400, bad},
		// probe: H7
		{"folded field", get("X-A: b\r\n c\r\n"), 400, bad},
		{"first field folded", "GET / HTTP/1.1\r\n Host: evil.example\r\n" + host + "\r\n", 400, bad},

		{"field without a colon", get("X-A\r\n"), 400, bad},
		{"field without a name", get(": x\r\n"), 400, bad},
		{"field with a control byte", get("X-A: \x01\r\n"), 400, bad},
		{"bare CR in a field", get("X-A: b\rX-B: c\r\n"), 400, bad},
		// probe: H7
		{"bare LF", "GET / HTTP/1.1\nHost: site.example\n\n", 400, bad},
		{"one bare LF", "GET / HTTP/1.1\r\nHost: site.example\nX: y\r\n\r\n", 400, bad},
		{"bare LF at the end", "GET / HTTP/1.1\r\nHost: site.example\r\n\n", 400, bad},
		// probe: H2
		{"HTTP/1.0", "GET / HTTP/1.0\r\n" + host + "\r\n", 400, bad},
		{"HTTP/0.9", "GET /\r\n", 400, bad},
		{"HTTP/1.2", "GET / HTTP/1.2\r\n" + host + "\r\n", 400, bad},
		// probe: H9
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, bad},

		{"lower-case version", "GET / http/1.1\r\n" + host + "\r\n", 400, bad},
		{"two spaces", "GET  / HTTP/1.1\r\n" + host + "\r\n", 400, bad},
		{"tab", "GET\t/ HTTP/1.1\r\n" + host + "\r\n", 400, bad},
		{"space in the target", "GET /a b HTTP/1.1\r\n" + host + "\r\n", 400, bad},
		{"fragment in the target", "GET /a#b HTTP/1.1\r\n" + host + "\r\n", 400, bad},
		{"UTF-8 in the target", "GET /\u00e4 HTTP/1.1\r\n" + host + "\r\n", 400, bad},
		// probe: H4, N9
		{"absolute form of another host", "GET http://evil.example/ HTTP/1.1\r\n" + host + "\r\n", 400, bad},
		{"absolute form of the same host", "GET http://site.example/ HTTP/1.1\r\n" + host + "\r\n", 400, bad},

		{"asterisk form", "OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 400, bad},
		// probe: H8, N9
		{"CONNECT", "CONNECT site.example:443 HTTP/1.1\r\n" + host + "\r\n", 405, bad},

		{"TRACE", "TRACE / HTTP/1.1\r\n" + host + "\r\n", 405, bad},
		// probe: H9
		{"websocket", get("Connection: Upgrade\r\nUpgrade: websocket\r\n"), 400, bad},
		{"h2c or websocket", get("Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n"), 400, bad},
		{"h2c and websocket", get("Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n"), 400, bad},
		{"TLS by upgrade", get("Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n"), 400, bad},
		{"empty upgrade", get("Connection: Upgrade\r\nUpgrade:\r\n"), 400, bad},
		// probe: H6
		{"length and coding", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, bad},
		{"two lengths", post("Content-Length: 0\r\nContent-Length: 5\r\n\r\n"), 400, bad},
		{"same length twice", post("Content-Length: 0\r\nContent-Length: 0\r\n\r\n"), 400, bad},
		{"list of lengths", post("Content-Length: 5, 5\r\n\r\nhello"), 400, bad},
		{"signed length", post("Content-Length: +5\r\n\r\nhello"), 400, bad},
		{"negative length", post("Content-Length: -5\r\n\r\nhello"), 400, bad},
		{"hexadecimal length", post("Content-Length: 0x5\r\n\r\nhello"), 400, bad},
		{"huge length", post("Content-Length: 99999999999999999999\r\n\r\n"), 400, bad},
		{"empty length", post("Content-Length:\r\n\r\n"), 400, bad},
		{"underscored length", post("Content_Length: 5\r\n\r\nhello"), 400, bad},
		{"underscored coding", post("Transfer_Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, bad},
		{"two codings", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400, bad},
		{"coding list", post("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 400, bad},
		{"identity", post("Transfer-Encoding: identity\r\n\r\n"), 400, bad},
		{"obfuscated coding", post("Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n"), 400, bad},
		{"quoted coding", post("Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"), 400, bad},
		{"coding with a parameter", post("Transfer-Encoding: chunked;x=y\r\n\r\n0\r\n\r\n"), 400, bad},

		{"unknown expectation", get("Expect: 200-maybe\r\n"), 417, bad},
		// probe: H11
		{"long head", get("X-A: " + strings.Repeat("a", 70_000) + "\r\n"), 431, limit},
		{"many fields", get(strings.Repeat("X-A: b\r\n", 200)), 431, limit},

		{"long method", strings.Repeat("A", 40) + " / HTTP/1.1\r\n" + host + "\r\n", 400, bad},
		// probe: H14
		{"TLS", string(testnet.Record(testnet.Message(testnet.SNI("site.example")))), 400, bad},
		// probe: N9
		{"SOCKS5", "\x05\x01\x00", 400, bad},

		{"two empty lines first", "\r\n\r\n" + get(""), 400, bad},
		{"a bare LF first", "\n" + get(""), 400, bad},
		{"a bare CR first", "\r" + get(""), 400, bad},
		{"an empty line alone", "\r\n", 0, bad},
		{"half an empty line", "\r", 400, bad},
		{"SSH", "SSH-2.0-OpenSSH_9.9\r\n", 400, bad},
		{"PROXY", "PROXY TCP4 1.2.3.4 5.6.7.8 1 80\r\n" + get(""), 400, bad},
		{"half a head", "GET / HTTP/1.1\r\n" + host, 400, bad},
		{"half a line", "GET / HT", 400, bad},
	}
	c := newCell(t, "strict", nil)
	o := testcell.NewOrigin(t, c.Cell, testcell.Echo)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn := testnet.Dial(t, c.http)
			testnet.Send(t, conn, []byte(tt.raw))
			_ = conn.CloseWrite()
			got, _ := io.ReadAll(conn)
			status := 0
			if resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(got)), nil); err == nil {
				status = resp.StatusCode
			}
			if status != tt.status || tt.status == 0 && len(got) > 0 {
				t.Errorf("answer %q, want status %d", got, tt.status)
			}
			r := c.Last(i + 1)
			if r.Verdict != firewall.Deny || r.Reason != tt.reason || r.Upstream.IsValid() || strings.ContainsAny(r.Host+r.Detail, "\r\n\x00") {
				t.Errorf("record %+v, want %s", r, tt.reason)
			}
		})
	}
	resp, err := c.client().Get("http://site.example/control")
	testcell.BodyOf(t, resp, err)
	if got := fmt.Sprint(o.Requests()); got != "[GET site.example /control]" {
		t.Errorf("the origin saw %s", got)
	}
	if n := c.Resolver.Asked.Load(); n != 1 {
		t.Errorf("%d look-ups, want 1, of the control", n)
	}
}

// What a client may send and a server may ignore (RFC 9110, section 7.8, and RFC 9112,
// section 2.2) is ignored, and the end of a name is one name: the server sees the same
// plain request each time.
//
// probe: H9
// oracle: the head as it arrives at the far side, byte for byte; the record
func TestForwardIgnores(t *testing.T) {
	const plain = "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"
	const settings = "HTTP2-Settings: AAMAAABkAAQAAP__\r\n"
	get := func(host, fields string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n" }
	for name, raw := range map[string]string{
		"nothing":                plain,
		"an upgrade, as of curl": get("site.example", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"+settings),
		"an upgrade, as of Java": get("site.example", settings+"Upgrade: H2C\r\nConnection: HTTP2-Settings,upgrade\r\n"),
		"the upgrade said twice": get("site.example", "Connection: Upgrade\r\nUpgrade: h2c,h2c\r\nConnection: HTTP2-Settings\r\nUpgrade: h2c\r\n"+settings),
		"an empty line":          "\r\n" + plain,
		"a dot":                  get("SITE.example.", ""),
		"a dot and the port":     get("site.example.:80", ""),
	} {
		t.Run(name, func(t *testing.T) {
			c, k := newCell(t, "strict", nil), testnet.NewCanary(t)
			c.Origin("127.0.0.1:80", k.Addr)
			conn := testnet.Dial(t, c.http)
			for i := range 2 { // as the first request of a connection, and as a later one
				testnet.Send(t, conn, []byte(raw))
				up := k.Next(t)
				if got := string(testnet.ReadN(t, up, len(plain))); got != plain {
					t.Fatalf("upstream got %q, want %q", got, plain)
				}
				testnet.Send(t, up, []byte("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"))
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
					t.Fatalf("%+v, %v", resp, err)
				}
				if r := c.Last(i + 1); r.Verdict != firewall.Allow || r.Host != "site.example" || r.BytesUp != int64(len(plain)) {
					t.Errorf("record %+v", r)
				}
			}
		})
	}
}

// A client that ends its requests with one more line than there should be, and then
// hangs up, has asked for nothing more.
func TestForwardLastEmptyLine(t *testing.T) {
	c := newCell(t, "strict", nil)
	testcell.NewOrigin(t, c.Cell, testcell.Echo)
	conn := testnet.Dial(t, c.http)
	testnet.Send(t, conn, []byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n\r\n"))
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || strings.Count(string(got), "HTTP/1.1") != 1 {
		t.Errorf("%q, %v", got, err)
	}
	if r := c.Last(1); r.Verdict != firewall.Allow {
		t.Errorf("record %+v", r)
	}
}

// docs/allowlist.md has every field that is taken out.
func TestForwardFieldsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/allowlist.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Requests on port 80\n")
	section, _, _ = strings.Cut(section, "\n## ")
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z0-9-]+)`").FindAllStringSubmatch(section, -1) {
		told[strings.ToLower(m[1])] = true
	}
	for _, taken := range []map[string]bool{ours, forwarding} {
		for name := range taken {
			if !told[name] {
				t.Errorf("docs/allowlist.md does not say that %s is taken out", name)
			}
			delete(told, name)
		}
	}
	for name := range told {
		if !isForwarding(name) {
			t.Errorf("docs/allowlist.md has the field %s, which is passed on", name)
		}
	}
}

// On a connection that is kept, each request is judged for itself.
//
// probe: H5
// oracle: a web server on the far side, which sees the allowed requests only; the
// records
func TestForwardKeptConnection(t *testing.T) {
	c := newCell(t, "strict", nil)
	o := testcell.NewOrigin(t, c.Cell, testcell.Echo)
	conn := testnet.Dial(t, c.http)
	br := bufio.NewReader(conn)
	ask := func(host string) (int, string) {
		t.Helper()
		testnet.Send(t, conn, []byte("GET /"+host+" HTTP/1.1\r\nHost: "+host+"\r\n\r\n"))
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, testcell.BodyOf(t, resp, nil)
	}
	for _, host := range []string{"site.example", "site.example", "other.example", "site.example"} {
		if status, body := ask(host); status != 200 || body != "GET "+host+" " {
			t.Errorf("%d %q", status, body)
		}
	}
	if n := o.Conns(); n != 3 {
		t.Errorf("%d upstream connections, want one for each change of host", n)
	}
	if status, _ := ask("evil.example"); status != 403 {
		t.Errorf("status %d for a refused host", status)
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("after a refusal: %v", err)
	}
	rs := c.Wait(5)
	if r := rs[4]; r.Verdict != firewall.Deny || r.Host != "evil.example" {
		t.Errorf("record %+v", r)
	}
	if got := len(o.Requests()); got != 4 {
		t.Errorf("the origin saw %q", o.Requests())
	}
}

// Requests sent ahead of their answers are judged one by one, too.
//
// probe: H5
// oracle: a web server on the far side, which sees the first two requests only; the
// records
func TestForwardPipeline(t *testing.T) {
	c := newCell(t, "strict", nil)
	o := testcell.NewOrigin(t, c.Cell, testcell.Echo)
	conn := testnet.Dial(t, c.http)
	testnet.Send(t, conn, []byte("GET /1 HTTP/1.1\r\nHost: site.example\r\n\r\n"+
		"POST /2 HTTP/1.1\r\nHost: site.example\r\nContent-Length: 3\r\n\r\nabc"+
		"GET /3 HTTP/1.1\r\nHost: evil.example\r\n\r\n"+
		"GET /4 HTTP/1.1\r\nHost: site.example\r\n\r\n"))
	got, err := io.ReadAll(conn)
	if err != nil || strings.Count(string(got), "HTTP/1.1 200 OK") != 2 || strings.Count(string(got), "HTTP/1.1 403") != 1 {
		t.Errorf("%q, %v", got, err)
	}
	if got := fmt.Sprint(o.Requests()); got != "[GET site.example /1 POST site.example /2]" {
		t.Errorf("the origin saw %s", got)
	}
	rs := c.Wait(3) // and none of the fourth, which was not read
	if r := rs[2]; rs[0].Verdict != firewall.Allow || rs[1].Verdict != firewall.Allow || r.Reason != firewall.ReasonNotListed || r.Host != "evil.example" {
		t.Errorf("records %+v", rs)
	}
}

// A body is never taken for a request, and what follows it upstream is nothing.
//
// probe: H6
// oracle: a listener on the far side, which reads the request and what follows it
func TestForwardHidesNoRequest(t *testing.T) {
	hidden := "GET /hidden HTTP/1.1\r\nHost: evil.example\r\n\r\n"
	for _, method := range []string{"GET", "POST"} {
		c, k := newCell(t, "strict", nil), testnet.NewCanary(t)
		c.Origin("127.0.0.1:80", k.Addr)
		conn := testnet.Dial(t, c.http)
		testnet.Send(t, conn, fmt.Appendf(nil, "%s / HTTP/1.1\r\nHost: site.example\r\nContent-Length: %d\r\n\r\n%s", method, len(hidden), hidden))
		up := k.Next(t)
		br := bufio.NewReader(up)
		req, err := http.ReadRequest(br)
		if err != nil || !req.Close {
			t.Fatalf("%+v, %v; want a connection that closes", req, err)
		}
		testnet.Send(t, up, []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
			t.Fatal(err)
		}
		testnet.Send(t, conn, []byte("GET /next HTTP/1.1\r\nHost: site.example\r\n\r\n"))
		next := k.Next(t) // over a connection of its own
		if req, err := http.ReadRequest(bufio.NewReader(next)); err != nil || req.URL.Path != "/next" {
			t.Errorf("%+v, %v", req, err)
		}
		if r := c.Last(1); r.Verdict != firewall.Allow || r.Host != "site.example" || r.BytesUp < int64(len(hidden)) {
			t.Errorf("record %+v", r)
		}
	}
}

// What a client says about the connection, or in the name of a proxy, stays
// behind; all else arrives as it was sent.
//
// probe: H12
// oracle: the head as it arrives at the far side, byte for byte
func TestForwardFields(t *testing.T) {
	c, k := newCell(t, "strict", nil), testnet.NewCanary(t)
	c.Origin("127.0.0.1:80", k.Addr)
	conn := testnet.Dial(t, c.http)
	testnet.Send(t, conn, []byte("PUT /x HTTP/1.1\r\nhOst: SITE.example:80\r\nX-Forwarded-For: 10.0.0.1\r\nForwarded: host=evil.example\r\n"+
		"X-Forwarded-Host: evil.example\r\nX_Forwarded_Host: evil.example\r\nX-Original-URL: /admin\r\nX-Real-IP: 10.0.0.1\r\nVia: 1.1 x\r\n"+
		"X-Host: evil.example\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nTE: trailers\r\nKeep-Alive: 5\r\n"+
		"Connection: keep-alive, X-Private\r\nX-Private: 1\r\nTrailer: X-T\r\nexpect: 100-continue\r\nTransfer-Encoding: Chunked\r\n"+
		"authorization: Bearer x\r\nX-Odd:\t spaced \xff \r\ncookie: a=b\r\nCookie: c=d\r\n\r\n"))
	up := k.Next(t)
	got := make([]byte, 0, 4096)
	for !bytes.HasSuffix(got, []byte("\r\n\r\n")) {
		got = append(got, testnet.ReadN(t, up, 1)...)
	}
	want := "PUT /x HTTP/1.1\r\nHost: site.example\r\nauthorization: Bearer x\r\nX-Odd: spaced \xff\r\ncookie: a=b\r\nCookie: c=d\r\n" +
		"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
	if string(got) != want {
		t.Errorf("upstream got %q, want %q", got, want)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Errorf("%q, %v", line, err)
	}
	testnet.Send(t, conn, []byte("5;ext=1\r\nhello\r\n1\r\n!\r\n0\r\nX-T: hidden\r\n\r\n"))
	if got := string(testnet.ReadN(t, up, len("5\r\nhello\r\n"))); got != "5\r\nhello\r\n" && got != "6\r\nhello!\r" {
		t.Errorf("body %q", got)
	}
}

// Responses come as they are sent, with interim ones before and in chunks.
func TestForwardStreams(t *testing.T) {
	c := newCell(t, "strict", nil)
	step := make(chan struct{})
	testcell.NewOrigin(t, c.Cell, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Connection", "X-Hop")
		w.Header().Set("X-Hop", "1")
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "token %d\n", i)
			w.(http.Flusher).Flush()
			<-step
		}
	})
	hints := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error { hints += code; return nil },
	})
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://site.example/", nil)
	resp, err := c.client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	br := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := br.ReadString('\n'); line != fmt.Sprintf("token %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
		step <- struct{}{}
	}
	if _, err := br.ReadByte(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if hints != http.StatusEarlyHints || resp.Header.Get("X-Hop") != "" || len(resp.Header["Set-Cookie"]) != 2 {
		t.Errorf("hints %d, header %v", hints, resp.Header)
	}
}

// A redirect is passed on: where it leads is the client's next request, judged
// like any other.
//
// probe: H13
// oracle: the answer that the client gets, the requests that the far side saw, and the
// count of dials
func TestForwardRedirect(t *testing.T) {
	c := newCell(t, "strict", nil)
	o := testcell.NewOrigin(t, c.Cell, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://evil.example/", http.StatusFound)
	})
	resp, err := c.client().Get("http://site.example/")
	testcell.BodyOf(t, resp, err)
	if resp.StatusCode != 302 || resp.Header.Get("Location") != "http://evil.example/" || len(o.Requests()) != 1 {
		t.Errorf("%d %v, origin saw %q", resp.StatusCode, resp.Header, o.Requests())
	}
	if n := len(c.Dials()); n != 1 {
		t.Errorf("%d dials", n)
	}
	if r := c.Last(1); r.Verdict != firewall.Allow || r.Host != "site.example" {
		t.Errorf("record %+v", r)
	}
}

// Slow clients meet a deadline: for the head an absolute one.
//
// probe: H11
// oracle: the status that the client gets, and the record
func TestForwardHeadDeadline(t *testing.T) {
	c := newCell(t, "strict", func(s *server) { s.HelloTimeout = 200 * time.Millisecond })
	conn := testnet.Dial(t, c.http)
	go func() {
		for _, b := range []byte("GET / HTTP/1.1\r\nHost: site.example\r\nX: " + strings.Repeat("a", 1000)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 408 {
		t.Errorf("%+v, %v", resp, err)
	}
	if r := c.Last(1); r.Reason != firewall.ReasonLimit {
		t.Errorf("record %+v", r)
	}
	if got, err := io.ReadAll(testnet.Dial(t, c.http)); len(got) > 0 || err != nil {
		t.Errorf("silence was answered with %q, %v", got, err)
	}
	if r := c.Last(2); r.Reason != firewall.ReasonLimit {
		t.Errorf("record %+v", r)
	}
}
