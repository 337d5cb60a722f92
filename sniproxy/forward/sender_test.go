package forward

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
)

// exchangeCell is a cell whose port 80 leads to a canary.
func exchangeCell(t *testing.T) (*cell, *testnet.Canary) {
	t.Helper()
	c, k := newCell(t, "strict", nil), testnet.NewCanary(t)
	c.Origin("127.0.0.1:80", k.Addr)
	return c, k
}

const (
	getRequest  = "GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"
	postRequest = "POST / HTTP/1.1\r\nHost: site.example\r\n"
)

// A faulty body never ends as if it were whole, for the upstream or in the record.
//
// probe: H6
// oracle: the body as the far side reads it, which never seems whole; the status and
// the record
func TestForwardFaultyBody(t *testing.T) {
	testnet.NoLeak(t)
	tests := []struct{ name, raw string }{
		{"malformed chunk size", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n"},
		{"chunk longer than stated", "Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n"},
		{"bare LF after the size", "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"},
		{"bare LF in the trailer", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\n\r\n"},
		{"long trailer", "Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("X: y\r\n", 2000) + "\r\n"},
		{"closed inside", "Content-Length: 10\r\n\r\nhello"},
		{"closed inside chunks", "Transfer-Encoding: chunked\r\n\r\n5\r\nhel"},
		{"closed before the last chunk", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, k := exchangeCell(t)
			conn := testnet.Dial(t, c.http)
			testnet.Send(t, conn, []byte(postRequest+tt.raw))
			_ = conn.CloseWrite()
			up := bufio.NewReader(k.Next(t))
			if req, err := http.ReadRequest(up); err == nil {
				if _, err := io.ReadAll(req.Body); err == nil {
					t.Error("the upstream got a whole body")
				}
			}
			got, _ := io.ReadAll(conn)
			if status, _, _ := strings.Cut(string(got), " Bad"); status != "HTTP/1.1 400" {
				t.Errorf("answer %q", got)
			}
			if r := c.Last(1); r.Verdict != firewall.Deny || r.Reason != firewall.ReasonBadRequest || r.Allowed != firewall.ReasonListed || r.BytesUp == 0 {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// A client that stops in the middle of a body is told so, and the far side does not
// take the part for the whole. One that goes on, if in pieces, is served.
//
// probe: H11
// oracle: the body as the far side reads it, the status that the client gets, and the
// record
func TestForwardSlowBody(t *testing.T) {
	testnet.NoLeak(t)
	for name, test := range map[string]struct{ begin, rest string }{
		"sized":  {"Content-Length: 10\r\n\r\nhello", "world"},
		"chunks": {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "5\r\nworld\r\n0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, k := newCell(t, "strict", func(s *server) { s.bodyIdle = time.Second }), testnet.NewCanary(t)
			c.Origin("127.0.0.1:80", k.Addr)
			conn := testnet.Dial(t, c.http)
			testnet.Send(t, conn, []byte(postRequest+test.begin))
			up := bufio.NewReader(k.Next(t))
			req, err := http.ReadRequest(up)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(req.Body); err == nil {
				t.Errorf("the far side took %q for the whole", body)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
				t.Errorf("%+v, %v", resp, err)
			}
			if r := c.Last(1); r.Verdict != firewall.Deny || r.Reason != firewall.ReasonLimit {
				t.Errorf("record %+v", r)
			}

			conn = testnet.Dial(t, c.http)
			testnet.Send(t, conn, []byte(postRequest+test.begin))
			far := k.Next(t)
			if req, err = http.ReadRequest(bufio.NewReader(far)); err != nil {
				t.Fatal(err)
			}
			testnet.Send(t, conn, []byte(test.rest))
			if body, err := io.ReadAll(req.Body); err != nil || string(body) != "helloworld" {
				t.Errorf("control: the far side got %q, %v", body, err)
			}
			testnet.Send(t, far, []byte("HTTP/1.1 204 No Content\r\n\r\n"))
			if r := c.Last(2); r.Verdict != firewall.Allow {
				t.Errorf("control: record %+v", r)
			}
		})
	}
}

// An upstream may answer before it has the whole body; the client gets to read
// that, and the connection ends, since where the next request begins is unclear.
func TestForwardEarlyAnswer(t *testing.T) {
	testnet.NoLeak(t)
	c, k := exchangeCell(t)
	conn := testnet.Dial(t, c.http)
	testnet.Send(t, conn, []byte(postRequest+"Content-Length: 1000000\r\n\r\nsome"))
	up := k.Next(t)
	if _, err := http.ReadRequest(bufio.NewReader(up)); err != nil {
		t.Fatal(err)
	}
	testnet.Send(t, up, []byte("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nlong"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 413 || !resp.Close || testcell.BodyOf(t, resp, nil) != "long" {
		t.Errorf("%+v, %v", resp, err)
	}
	if r := c.Last(1); r.Verdict != firewall.Allow {
		t.Errorf("record %+v", r)
	}
}

// A client that goes away takes its request to a silent upstream with it; one
// that only finished sending does not.
func TestForwardClientGone(t *testing.T) {
	testnet.NoLeak(t)
	c, k := exchangeCell(t)
	conn := testnet.Dial(t, c.http)
	testnet.Send(t, conn, []byte(getRequest))
	up := k.Next(t)
	_ = conn.CloseWrite()
	testnet.ReadN(t, up, len(getRequest))
	testnet.Send(t, up, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
	if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "ok") {
		t.Errorf("a half-closed client got %q, %v", got, err)
	}
	c.Wait(1)

	for i, half := range []bool{false, true} {
		conn := testnet.Dial(t, c.http)
		testnet.Send(t, conn, []byte(getRequest))
		up := k.Next(t)
		testnet.ReadN(t, up, len(getRequest))
		if half {
			_ = conn.CloseWrite()
		}
		testnet.Reset(conn)
		if _, err := io.ReadAll(up); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("half %v: the upstream got %v", half, err)
		}
		if r := c.Last(i + 2); r.Detail != "the client went away" {
			t.Errorf("record %+v", r)
		}
	}
}

// What an upstream does wrong is told to the client, as a cut where the response
// has begun.
//
// probe: X12
// oracle: the answer that the client gets, which never seems whole where it is not, and
// the record
func TestForwardBadUpstream(t *testing.T) {
	const cut = -1
	tests := []struct {
		name, answer string
		status       int
	}{
		{"no answer", "", 502},
		{"not HTTP", "SSH-2.0-x\r\n", 502},
		{"half a head", "HTTP/1.1 200 OK\r\nX: y\r\n", 502},
		{"long head", "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 300_000) + "\r\n\r\n", 502},
		{"upgrade", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 502},
		{"interim for ever", strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 50), 502},
		{"short body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", cut},
		{"open chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", cut},
		{"until the end", "HTTP/1.1 200 OK\r\n\r\nhello", 200},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nhello", 200},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204},
		{"not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n", 304},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, k := exchangeCell(t)
			conn := testnet.Dial(t, c.http)
			testnet.Send(t, conn, []byte(getRequest))
			up := k.Next(t)
			testnet.ReadN(t, up, len(getRequest))
			_, _ = up.Write([]byte(tt.answer)) // the gate may hang up inside
			up.Close()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if tt.status == cut {
				if err == nil {
					t.Errorf("a part was taken for the whole: %q", body)
				}
			} else if resp.StatusCode != tt.status || err != nil {
				t.Errorf("%d %q, %v", resp.StatusCode, body, err)
			}
			if tt.status == 502 && !strings.Contains(string(body), "could not forward") {
				t.Errorf("%q", body)
			}
			if r := c.Last(1); r.Verdict != firewall.Allow || (tt.status < 200 || tt.status == 502) != (r.Detail != "") {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// What an upstream sends beyond its response is not taken for the response to the
// next request, be that for the same host or for another one.
//
// probe: X12
// oracle: the connections that reach the far side, and the answers that the client gets
func TestForwardExtraResponse(t *testing.T) {
	testnet.NoLeak(t)
	c, k := exchangeCell(t)
	conn := testnet.Dial(t, c.http)
	br := bufio.NewReader(conn)
	for i, host := range []string{"site.example", "site.example", "other.example", "site.example"} {
		testnet.Send(t, conn, []byte("GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"))
		up := k.Next(t) // a connection of its own each time
		req, err := http.ReadRequest(bufio.NewReader(up))
		if err != nil || req.Host != host {
			t.Fatalf("%+v, %v", req, err)
		}
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d", i)
		testnet.Send(t, up, []byte(answer+"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"))
		resp, err := http.ReadResponse(br, nil)
		if got := testcell.BodyOf(t, resp, err); got != fmt.Sprint(i) {
			t.Errorf("request %d was answered with %q", i, got)
		}
		if r := c.Last(i + 1); r.Verdict != firewall.Allow || r.Host != host {
			t.Errorf("record %+v", r)
		}
	}
}

// A kept upstream connection that died while idle is replaced without a sign,
// by one to an address that is judged anew.
//
// probe: R5
// oracle: the count of look-ups, the status and the record once the address is a
// private one
func TestForwardStaleUpstream(t *testing.T) {
	c, k := exchangeCell(t)
	conn := testnet.Dial(t, c.http)
	br := bufio.NewReader(conn)
	for range 2 {
		testnet.Send(t, conn, []byte(getRequest))
		up := k.Next(t)
		testnet.ReadN(t, up, len(getRequest))
		testnet.Send(t, up, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		resp, err := http.ReadResponse(br, nil)
		if testcell.BodyOf(t, resp, err) != "ok" {
			t.Fatal("no answer")
		}
		up.Close()
	}
	if n := c.Resolver.Asked.Load(); n != 2 {
		t.Errorf("%d look-ups, want one for each dial", n)
	}
	c.Resolver.Set("site.example", "10.0.0.1")
	testnet.Send(t, conn, []byte(getRequest))
	resp, err := http.ReadResponse(br, nil)
	if err != nil || resp.StatusCode != 403 {
		t.Errorf("%+v, %v", resp, err)
	}
	if rs := c.Wait(3); rs[2].Reason != firewall.ReasonAddress {
		t.Errorf("record %+v", rs[2])
	}
}

// deafExchange begins a request the body of which waits for an upstream that reads
// the head alone.
func deafExchange(t *testing.T, c *cell, k *testnet.Canary) (conn, up *net.TCPConn) {
	t.Helper()
	conn = testnet.Dial(t, c.http)
	testnet.Send(t, conn, []byte(postRequest+"Content-Length: 100000000\r\n\r\n"))
	up = k.Next(t)
	if _, err := http.ReadRequest(bufio.NewReaderSize(up, 64)); err != nil {
		t.Fatal(err)
	}
	testnet.Fill(t, conn)
	return conn, up
}

// An upstream that has answered does not hold the connection by not reading the
// rest of the body.
func TestForwardDeafUpstream(t *testing.T) {
	testnet.NoLeak(t)
	c, k := exchangeCell(t)
	conn, up := deafExchange(t, c, k)
	testnet.Send(t, up, []byte("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nlong"))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 413 || !resp.Close || testcell.BodyOf(t, resp, nil) != "long" {
		t.Errorf("%+v, %v", resp, err)
	}
	if r := c.Last(1); r.Verdict != firewall.Allow || r.Detail != "" {
		t.Errorf("record %+v", r)
	}
	testnet.Eventually(t, "the connection to be counted out", func() bool { return c.server.Open() == 0 })
}

// A client that goes away while its body waits is noticed; one that stays is not
// held against an upstream that only pauses.
func TestForwardClientGoneFromDeafUpstream(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newCell(t, "strict", func(s *server) { s.bodyIdle = time.Second }), testnet.NewCanary(t)
	c.Origin("127.0.0.1:80", k.Addr)
	conn, up := deafExchange(t, c, k)
	testnet.Reset(conn)
	if r := c.Last(1); r.Detail != "the client went away" {
		t.Errorf("record %+v", r)
	}
	if _, err := io.Copy(io.Discard, up); err == nil {
		t.Error("the upstream took a part for the whole")
	}

	conn = testnet.Dial(t, c.http)
	const size = 32 << 20
	testnet.Send(t, conn, fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n", postRequest, size))
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(make([]byte, size))
		sent <- err
	}()
	up = k.Next(t)
	time.Sleep(2500 * time.Millisecond) // it pauses for some times bodyIdle
	req, err := http.ReadRequest(bufio.NewReader(up))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, req.Body); n != size || err != nil {
		t.Errorf("control: the upstream got %d bytes, %v", n, err)
	}
	testnet.Send(t, up, []byte("HTTP/1.1 204 No Content\r\n\r\n"))
	if err := <-sent; err != nil {
		t.Errorf("control: %v", err)
	}
	if r := c.Last(2); r.Verdict != firewall.Allow || r.Detail != "" {
		t.Errorf("control: record %+v", r)
	}
}
