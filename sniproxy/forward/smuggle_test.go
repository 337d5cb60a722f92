package forward

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/testnet"
)

// requestSeeds are streams in which readers are known to have disagreed about
// where one request ends, or for whom it is.
var requestSeeds = []string{
	"GET /a?b=c HTTP/1.1\r\nHost: site.example\r\nAccept: */*\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 5\r\n\r\nhelloGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nX: y\r\n\r\nGET /2 HTTP/1.1\r\nHost: other.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n5c\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 6\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\nG",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\nTransfer-encoding: x\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding:\tchunked \r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 38\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\nX: y\r\n\rGET /2 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\n\x00Host: evil.example\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\nHost: evil.example\r\n\r\n",
	"GET / HTTP/1.1\r\n Host: evil.example\r\nHost: site.example\r\n\r\n",
	"GET http://evil.example/ HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"GET //evil.example/ HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"GET /%0d%0aHost:%20evil.example HTTP/1.1\r\nHost: SITE.example.:80\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: site.example\r\nConnection: close, Host, Content-Length\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: site.example\r\n\r\nGET /2 HTTP/1.1\r\nHost: site.example\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: site.example\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"CONNECT site.example:80 HTTP/1.1\r\nHost: site.example\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
}

// FuzzRequest holds our reading of a request head against net/http's: of the
// client's bytes, and of the bytes that we send in their place.
func FuzzRequest(f *testing.F) {
	for _, s := range slices.Concat(requestSeeds, smuggling) {
		f.Add([]byte(s))
	}
	cell := &admission.Cell{}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := admission.NewHeadBuffer(cell)
		defer in.Free()
		if readHead(bufio.NewReader(bytes.NewReader(raw)), in) != nil {
			return
		}
		req, r := parseRequest(in.B)
		if r != nil {
			return
		}
		if !bytes.HasPrefix(raw, in.B) {
			t.Fatal("the head is not the beginning of the stream")
		}
		compare(t, req, in.B, "the client's bytes")
		ours := req.appendHead(nil)
		compare(t, req, ours, "our bytes")
		again, r := parseRequest(ours)
		if r != nil || again.host != req.host || again.length != req.length || again.target != req.target || !slices.Equal(again.fields, req.fields) {
			t.Errorf("read again: %+v, %v; first: %+v", again, r, req)
		}
		repeatable := req.repeatable()
		if req.rewrite(in); !bytes.Equal(in.B, ours) || len(in.B) > in.Reserved()+admission.HeadBytes+maxAdded || req.repeatable() != repeatable {
			t.Errorf("in the client's place: %q, want %q", in.B, ours)
		}
	})
}

// compare reads a head as net/http does. That may refuse it, but not take it for
// another request.
func compare(t *testing.T, req *request, head []byte, what string) {
	t.Helper()
	br := bufio.NewReader(bytes.NewReader(head))
	other, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	host := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(other.Host), ":80"), ".")
	length := int64(0)
	switch {
	case len(other.TransferEncoding) > 0:
		length = chunked
	case other.ContentLength > 0:
		length = other.ContentLength
	}
	if other.Method != req.method || other.RequestURI != req.target || host != req.host.String() || length != req.length || br.Buffered() > 0 {
		t.Errorf("%s: net/http reads %s %s of %s with a body of %d and %d bytes left, we read %+v",
			what, other.Method, other.RequestURI, other.Host, length, br.Buffered(), req)
	}
}

// A smuggleRig is a cell before a lenient web server to which every name leads,
// so that a request that slipped past its judgement is seen.
type smuggleRig struct {
	c      *cell
	origin chan string // hosts of the requests that reached it
	// allowed counts the requests that were judged and not seen at the origin
	// yet: one may get there after its client is gone.
	allowed map[string]int
}

func newSmuggleRig(tb testing.TB) *smuggleRig {
	rig := &smuggleRig{origin: make(chan string, 1000), allowed: map[string]int{}}
	rig.c = newCell(tb, "strict", func(s *server) { s.HelloTimeout = 2 * time.Second })
	for _, name := range []string{"evil.example", "a.site.example", "tlsonly.example"} {
		rig.c.Resolver.Set(name, "127.0.0.1")
	}
	ln := testnet.Listen(tb)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rig.origin <- r.Host
		_, _ = io.Copy(io.Discard, r.Body)
	})}
	go func() { _ = server.Serve(ln) }()
	tb.Cleanup(func() { server.Close() })
	rig.c.Origin("127.0.0.1:80", ln.Addr().String())
	return rig
}

// try sends a stream and holds what reached the origin against the records.
func (rig *smuggleRig) try(t *testing.T, raw []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", rig.c.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { // the gate may hang up inside
		_, _ = conn.Write(raw)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(io.Discard, conn)
	conn.Close()
	testnet.Eventually(t, "the connection to end", func() bool { return rig.c.server.Open() == 0 })

	recs := rig.c.Take()
	for _, r := range recs {
		// A faulty body is found after its request went out.
		if r.Verdict == firewall.Allow || strings.Contains(r.Detail, "body") || strings.Contains(r.Detail, "chunks") {
			rig.allowed[r.Host]++
		}
	}
	for {
		select {
		case host := <-rig.origin:
			if rig.allowed[host]--; rig.allowed[host] < 0 || host == "evil.example" || host == "tlsonly.example" {
				t.Fatalf("a request for %q reached the origin without its record: %+v", host, recs)
			}
		default:
			return
		}
	}
}

// FuzzForward sends streams through a real cell to a real web server: every
// request that reaches it must have been judged.
func FuzzForward(f *testing.F) {
	for _, s := range slices.Concat(requestSeeds, smuggling) {
		f.Add([]byte(s))
	}
	rig := newSmuggleRig(f)
	f.Fuzz(func(t *testing.T, raw []byte) { rig.try(t, raw) })
}

// The oracle of FuzzForward counts what is allowed.
func TestSmuggleRig(t *testing.T) {
	rig := newSmuggleRig(t)
	conn := testnet.Dial(t, rig.c.http)
	testnet.Send(t, conn, []byte(requestSeeds[2]))
	_ = conn.CloseWrite()
	if got, err := io.ReadAll(conn); err != nil || strings.Count(string(got), "200 OK") != 2 {
		t.Errorf("%q, %v", got, err)
	}
	if a, b := <-rig.origin, <-rig.origin; a != "site.example" || b != "other.example" {
		t.Errorf("the origin saw %q, %q", a, b)
	}
	rig.c.Wait(2)
}
