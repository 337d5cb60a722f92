package testcell

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"sallyport/sniproxy/testnet"
)

// An Origin is a real web server on the far side that notes what reached it.
type Origin struct {
	*httptest.Server
	mu   sync.Mutex // guards seen
	seen []string   // "METHOD host target"
	conn map[string]bool
}

// NewOrigin makes one to which port 80 of 127.0.0.1 leads.
func NewOrigin(t *testing.T, c *Cell, handler http.HandlerFunc) *Origin {
	t.Helper()
	o := &Origin{conn: map[string]bool{}}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.seen = append(o.seen, r.Method+" "+r.Host+" "+r.RequestURI)
		o.conn[r.RemoteAddr] = true
		o.mu.Unlock()
		handler(w, r)
	}))
	t.Cleanup(o.Close)
	c.Origin("127.0.0.1:80", o.Listener.Addr().String())
	return o
}

// Requests are those that have reached it.
func (o *Origin) Requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.seen...)
}

// Conns is over how many connections they came.
func (o *Origin) Conns() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.conn)
}

// Client is a real HTTP client that finds every host at addr, a cell's port 80, as
// one behind the DNS gate does.
func Client(tb testing.TB, addr string) *http.Client {
	tr := &http.Transport{
		Proxy:              nil,
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		},
		ExpectContinueTimeout: testnet.Patience,
	}
	tb.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: testnet.Patience, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

// Echo answers with what was asked.
func Echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Host, body)
}

// BodyOf is the body of a response.
func BodyOf(t *testing.T, resp *http.Response, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
