package forward

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// A judgement is a request as the gate understood it.
type judgement struct {
	req   *request
	body  string
	whole bool // its body is all there
}

// judgements are those of the requests of a stream that the gate passes on.
func judgements(server *admission.Cell, policy *firewall.Policy, raw []byte) (list []judgement) {
	br := bufio.NewReaderSize(bytes.NewReader(raw), admission.HeadBytes)
	for {
		in := admission.NewHeadBuffer(server)
		_ = awaitRequest(br) // readHead fails if this did
		r := readHead(br, in)
		req := &request{}
		if r == nil {
			req, r = parseRequest(in.B)
		}
		in.Free()
		if r != nil || !policy.Decide(req.host, Port).Allowed() {
			return list
		}
		j := judgement{req: req}
		j.body, j.whole = bodyIn(br, req)
		if list = append(list, j); !j.whole || req.close {
			return list
		}
	}
}

func bodyIn(br *bufio.Reader, req *request) (string, bool) {
	var body []byte
	var err error
	if req.length == chunked {
		if body, err = io.ReadAll(httputil.NewChunkedReader(br)); err == nil {
			err = readTrailer(br)
		}
	} else {
		body, err = io.ReadAll(io.LimitReader(br, req.length))
	}
	return string(body), err == nil && (req.length == chunked || int64(len(body)) == req.length)
}

// agrees wants that nginx took a request for what we judged it to be.
func (j judgement) agrees(t *testing.T, got taken, sent int64) {
	t.Helper()
	body := strings.TrimSuffix(j.body, "-") // nginx writes "-" for nothing
	if !j.whole || got.method != j.req.method || got.uri != j.req.target || got.host != j.req.host.String() ||
		got.lower != got.host || got.body != body || got.length != sent {
		t.Errorf("nginx took %d bytes for %+v, we sent %d for %+v with body %q (whole: %v)", got.length, got, sent, j.req, j.body, j.whole)
	}
}

// smuggling are streams that make readers disagree about the framing, beside
// those of requestSeeds.
var smuggling = []string{
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: +5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 5, 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length : 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 0000000005\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 18446744073709551621\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent_Length: 40\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\nContent_Length: 3\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n5;\nx\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n00\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: evil.example\r\nContent-Length: 9\r\n\r\nGET /2 HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n2c\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\nxyz\r\n0\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\nX: a\x00b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\nX: y\r\nHost : evil.example\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example/evil\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\nX-Forwarded-Host: evil.example\r\nForwarded: host=evil.example\r\n\r\n",
	"GET  / HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"GET /a b HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"GET /../../x?%00#y HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"GET /%00/%2e%2e/\\x HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"\r\n\r\nGET / HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"\r\nGET / HTTP/1.1\r\nHost: site.example\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: other.example.\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 2\r\n\r\nhi\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 24\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\nConnection: Upgrade, Content-Length\r\nUpgrade: h2c\r\nContent-Length: 40\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"get / HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"OPTIONS /a HTTP/1.1\r\nHost: a.site.example\r\n\r\nDELETE /b HTTP/1.1\r\nHost: other.example:80\r\n\r\nGET /c HTTP/1.1\r\nHost: site.example\r\n\r\n",
}

// newNginxRig is a smuggleRig's cell before nginx.
func newNginxRig(tb testing.TB) (*nginx, *cell) {
	n := startNginx(tb)
	c := newCell(tb, "strict", func(s *server) { s.HelloTimeout = 2 * time.Second })
	for _, name := range []string{"evil.example", "a.site.example", "tlsonly.example"} {
		c.Resolver.Set(name, "127.0.0.1")
	}
	c.Origin("127.0.0.1:80", n.addr)
	return n, c
}

// say sends a stream and waits until the other side hangs up.
func say(t *testing.T, addr string, raw []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testnet.Patience))
	go func() { // the other side may hang up inside
		_, _ = conn.Write(raw)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(io.Discard, conn)
}

// FuzzNginx sends streams through a cell to nginx. Each request that nginx takes
// from what the gate sends is one that the gate judged, in order, with the same
// method, host, target and body, and made of just the bytes that the gate's record
// says were sent for it: nothing rides along.
//
// probe: H2, H3, H4, H5, H6, H7
// oracle: the log of a real nginx behind the gate, which has every request that it
// took from any connection, for whatever host, with the count of its bytes.
func FuzzNginx(f *testing.F) {
	for _, s := range slices.Concat(requestSeeds, smuggling) {
		f.Add([]byte(s))
	}
	n, c := newNginxRig(f)
	policy := testcell.Policy(f, "strict")
	f.Fuzz(func(t *testing.T, raw []byte) { checkAtNginx(t, n, c, policy, raw) })
}

// checkAtNginx sends one stream and holds nginx's log against judgements and records.
func checkAtNginx(t *testing.T, n *nginx, c *cell, policy *firewall.Policy, raw []byte) {
	t.Helper()
	say(t, c.http, raw)
	testnet.Eventually(t, "the connection to end", func() bool { return c.server.Open() == 0 })
	records := c.Take()
	records = slices.DeleteFunc(records, func(r account.Record) bool { return !r.Upstream.IsValid() })
	judged, got := judgements(&c.server.Cell, policy, raw), n.requests(t)
	if len(got) != len(records) || len(got) > len(judged) {
		t.Fatalf("nginx took %d requests of %d judged: %+v, the records are %+v", len(got), len(judged), got, records)
	}
	for i, request := range got {
		if request.status == http.StatusOK {
			judged[i].agrees(t, request, records[i].BytesUp)
		}
		if host := judged[i].req.host.String(); records[i].Host != host {
			t.Errorf("request %d is on record for %s, judged for %s", i, records[i].Host, host)
		}
	}
}

// pitfalls are what the streams of FuzzNginxMutants get inserted.
var pitfalls = []string{
	"\r\n", "\n", "\r", "\x00", " ", "\t", ":", ",", ";", "0", "-", "+", "0x", "\"", "\x0b", "\x80",
	"Host: evil.example\r\n", "Host: site.example\r\n", "Content-Length: 5\r\n", "Content-Length: 0\r\n",
	"Transfer-Encoding: chunked\r\n", "Transfer-Encoding: identity\r\n", "Connection: close\r\n", "Connection: Host\r\n",
	"Expect: 100-continue\r\n", "Upgrade: h2c\r\n", "Connection: Upgrade, HTTP2-Settings\r\n", "X: y\r\n z\r\n", "GET /x HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"GET /y HTTP/1.1\r\nHost: other.example\r\n\r\n", "0\r\n\r\n", "5\r\nhello\r\n", " HTTP/1.1", "http://evil.example",
}

// sound are streams that the gate passes on, for mutants that it may still pass on.
var sound = []string{
	"GET /1?a=b HTTP/1.1\r\nHost: site.example\r\nX: y\r\n\r\n",
	"GET /1 HTTP/1.1\r\nHost: a.site.example:80\r\n\r\nGET /2 HTTP/1.1\r\nHost: other.example\r\n\r\nHEAD /3 HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"POST /b HTTP/1.1\r\nHost: site.example\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"POST /c HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nT: u\r\n\r\nGET /2 HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"PUT /d HTTP/1.1\r\nHost: site.example\r\nExpect: 100-continue\r\nContent-Length: 44\r\n\r\nGET /e HTTP/1.1\r\nHost: evil.example\r\n\r\nabcdef",
}

// mutant makes a stream of one that is known, with a change or two at places where
// they are likely to matter.
func mutant(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	streams := slices.Concat(requestSeeds, smuggling)
	raw := []byte(streams[r.IntN(len(streams))])
	if r.IntN(4) > 0 {
		raw = []byte(sound[r.IntN(len(sound))])
	}
	for range 1 + r.IntN(3)/2 {
		at := r.IntN(len(raw) + 1)
		if i := bytes.IndexAny(raw[at:], "\r\n: "); i >= 0 && r.IntN(2) == 0 {
			at += i
		}
		end := min(len(raw), at+r.IntN(4))
		with := pitfalls[r.IntN(len(pitfalls))]
		switch r.IntN(4) {
		case 0: // leave some out
			with = ""
		case 1: // say some twice
			with = string(raw[at:min(len(raw), at+1+r.IntN(40))])
			end = at
		case 2: // put something in
			end = at
		}
		raw = slices.Concat(raw[:at], []byte(with), raw[end:])
	}
	return raw
}

// FuzzNginxMutants is FuzzNginx with streams that are less random.
//
// probe: H2, H3, H4, H5, H6, H7
// oracle: as for FuzzNginx.
func FuzzNginxMutants(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	n, c := newNginxRig(f)
	policy := testcell.Policy(f, "strict")
	f.Fuzz(func(t *testing.T, seed uint64) {
		raw := mutant(seed)
		if checkAtNginx(t, n, c, policy, raw); t.Failed() {
			t.Logf("the stream was %q", raw)
		}
	})
}

// FuzzFraming takes away what else guards a request that the gate rewrote, that
// nothing may follow it on its connection, and has another one follow: nginx must
// find its beginning where we put it.
//
// probe: H6, H7
// oracle: the log of a real nginx, as for FuzzNginx.
func FuzzFraming(f *testing.F) {
	for _, s := range slices.Concat(requestSeeds, smuggling) {
		f.Add([]byte(s))
	}
	n, server, policy := startNginx(f), &admission.Cell{}, testcell.Policy(f, "strict")
	const next = "GET /next HTTP/1.1\r\nHost: next.example\r\nConnection: close\r\n\r\n"
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, j := range judgements(server, policy, raw) {
			if !j.whole {
				continue
			}
			head := bytes.Replace(j.req.appendHead(nil), []byte("Connection: close\r\n\r\n"), []byte("\r\n"), 1)
			body := j.body
			if j.req.length == chunked {
				body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
				if j.body == "" {
					body = "0\r\n\r\n"
				}
			}
			say(t, n.addr, slices.Concat(head, []byte(body), []byte(next)))
			got := n.requests(t)
			switch {
			case len(got) == 1 && got[0].status != http.StatusOK: // nginx is stricter
			case len(got) != 2 || got[1].uri != "/next" || got[1].host != "next.example" || got[1].length != int64(len(next)):
				t.Errorf("nginx took %+v from one of ours and another one", got)
			default:
				j.agrees(t, got[0], int64(len(head)+len(body)))
			}
		}
	})
}

// The log sees what the targets want not to see: of bytes that did not go through
// the gate, nginx takes two requests, one for another host.
func TestNginxSees(t *testing.T) {
	n, c := newNginxRig(t)
	say(t, n.addr, []byte("POST /1 HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"+
		"GET /2 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"))
	got := n.requests(t)
	if len(got) != 2 || got[0].body != "hello" || got[0].status != 200 || got[1].host != "evil.example" || got[1].uri != "/2" {
		t.Fatalf("nginx took %+v", got)
	}
	say(t, c.http, []byte(requestSeeds[2]))
	got = n.requests(t)
	if len(got) != 2 || got[0].method != "POST" || got[0].body != "hello" || got[1].host != "other.example" {
		t.Fatalf("through the gate nginx took %+v", got)
	}
	for i, r := range c.Wait(2) {
		if r.Verdict != firewall.Allow || r.BytesUp != got[i].length {
			t.Errorf("the record is %+v, nginx took %+v", r, got[i])
		}
	}
}
