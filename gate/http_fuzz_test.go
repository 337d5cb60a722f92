package gate

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/firewall/allowlist"
	"sallyport/gate/control"
)

// statusOf has the statuses that each code comes with.
var statusOf = map[string][]int{
	control.CodeInvalid: {400, 501}, control.CodeNoPolicy: {422}, control.CodeLeased: {409}, control.CodeNotLeased: {404},
	control.CodeListen: {409}, control.CodeReloadInvalid: {422}, control.CodeNotFound: {404},
}

// FuzzControl makes one call of the control API of a gate at work, which has one
// lease. A call is answered as it should be, or with a problem whose code fits its
// status; and the leases afterwards are those from before, but for the one that the
// call released, or asked for rightly in every field.
//
// probe: L12
// oracle: the gate's own leases, compared with what a second reader makes of the
// call.
func FuzzControl(f *testing.F) {
	for _, seed := range []struct{ method, target, body string }{
		{"PUT", "/v1/cells/c2", `{"run":"run-2","policy":"open","address":"127.77.2.2","prefix":"127.77.2.0/28"}`},
		{"DELETE", "/v1/cells/held", ""},
		{"GET", "/v1/cells/held", ""},
		{"GET", "/v1/decisions?run=run-held&follow=true", ""},
		{"GET", "/healthz", ""},
		{"GET", "/metrics", ""},
		{"POST", "/v1/reload", ""},
	} {
		f.Add(seed.method, seed.target, seed.body)
	}
	g := start(f, upstream(f), func(d *Daemon) {
		d.Load = func() (*allowlist.File, error) { return d.Allowlist, nil }
	})
	call := controlCaller(f, g.Socket)
	f.Fuzz(func(t *testing.T, method, target, body string) {
		g.clean(t)
		g.lease(t, "held", cellLease(1, "run-held", "strict"))
		before := g.server.list().Cells
		r, ok := call(t, method, target, body)
		if !ok {
			return // no HTTP request at all
		}
		r.check(t)
		after := g.server.list().Cells
		switch {
		case r.status == http.StatusOK && method == http.MethodPut:
			wantAsked(t, target, body, r.body, before, after)
		case r.status == http.StatusOK && method == http.MethodDelete:
			if target, _, _ = strings.Cut(target, "?"); unescaped(target) != "/v1/cells/held" || len(after) != 0 {
				t.Errorf("released by %q: %+v", target, after)
			}
		case !reflect.DeepEqual(before, after):
			t.Errorf("%s %q with %q, status %d: the leases are %+v", method, target, body, r.status, after)
		}
	})
}

// clean releases every lease.
func (g *testGate) clean(t *testing.T) {
	for _, c := range g.server.list().Cells {
		g.release(t, c.ID)
	}
}

// An apiAnswer is the answer to a call.
type apiAnswer struct {
	status     int
	kind, body string
}

// controlCaller returns a function that makes one call; ok is false where the
// arguments make no request that a client would send.
func controlCaller(tb testing.TB, socket string) func(t *testing.T, method, target, body string) (apiAnswer, bool) {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	tb.Cleanup(transport.CloseIdleConnections)
	return func(t *testing.T, method, target, body string) (apiAnswer, bool) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, "http://gate"+target, strings.NewReader(body))
		if err != nil || req.URL.Host != "gate" || method == http.MethodConnect || method == "PRI" ||
			strings.ContainsAny(req.URL.RequestURI(), " \t\r\n") { // no request line: net/http refuses it
			return apiAnswer{}, false
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatalf("%s %q: %v", method, target, err)
		}
		defer resp.Body.Close()
		r := apiAnswer{status: resp.StatusCode, kind: resp.Header.Get("Content-Type")}
		if r.kind == "application/x-ndjson" {
			return r, true // it may have no end
		}
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("%s %q: %v", method, target, err)
		}
		if r.body = string(text); method == http.MethodHead {
			r.kind = ""
		}
		return r, true
	}
}

// check wants what an answer must be whatever the call was.
func (r apiAnswer) check(t *testing.T) {
	t.Helper()
	var p control.Problem
	switch {
	case r.kind == "": // HEAD
	case r.status == http.StatusOK && r.kind == "application/json":
		if !json.Valid([]byte(r.body)) {
			t.Errorf("the answer is %q", r.body)
		}
	case r.status == http.StatusOK && (r.kind == "application/x-ndjson" || strings.HasPrefix(r.kind, "text/plain; version=")):
	case r.kind != control.ProblemType:
		t.Errorf("status %d of type %q: %q", r.status, r.kind, r.body)
	case json.Unmarshal([]byte(r.body), &p) != nil || p.Status != r.status || p.Title == "" || p.Detail == "" || !slices.Contains(statusOf[p.Code], r.status):
		t.Errorf("status %d: %q", r.status, r.body)
	case len(p.Detail) > 1000 || strings.ContainsFunc(p.Detail, func(c rune) bool { return c < ' ' || c > '~' }):
		t.Errorf("the detail is %q", p.Detail)
	}
}

// wantAsked wants that a lease that was given is the one that the call asked for.
// It reads the call in other ways than the gate does.
func wantAsked(t *testing.T, target, body, answer string, before, after []control.Cell) {
	t.Helper()
	var asked map[string]string // all its fields are strings
	err := json.Unmarshal([]byte(body), &asked)
	if err != nil || len(body) > maxBody || len(asked) != 4 {
		t.Fatalf("leased by %q: %v", body, err)
	}
	address, err1 := netip.ParseAddr(asked["address"])
	prefix, err2 := netip.ParsePrefix(asked["prefix"])
	if err1 != nil || err2 != nil || !prefix.Contains(address) || prefix.Addr() != prefix.Masked().Addr() || !isOurs(address) ||
		prefix.Overlaps(before[0].Prefix) || !slices.Contains([]string{"strict", "other", "open"}, asked["policy"]) {
		t.Fatalf("leased by %q", body)
	}
	target, _, _ = strings.Cut(target, "?")
	id, found := strings.CutPrefix(unescaped(target), "/v1/cells/")
	want := control.Lease{Run: asked["run"], Policy: asked["policy"], Address: address, Prefix: prefix}
	var got control.Cell
	if err := json.Unmarshal([]byte(answer), &got); err != nil || !found || got.ID != id || got.Lease != want || len(after) != 2 {
		t.Fatalf("asked for %q with %q, got %q; there are %+v", target, body, answer, after)
	}
	if i := slices.IndexFunc(after, func(c control.Cell) bool { return c.ID == id }); i < 0 || after[i].Lease != want {
		t.Fatalf("asked for %q with %q, there are %+v", target, body, after)
	}
	if strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.ContainsAny(want.Run, "/\\ \n\x00") {
		t.Fatalf("the cell %q has the run %q", id, want.Run)
	}
}

// isOurs reports whether an address is one of this machine.
func isOurs(address netip.Addr) bool {
	ln, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(address, 0)))
	if err == nil {
		ln.Close()
	}
	return err == nil
}

func unescaped(path string) string {
	plain, err := url.PathUnescape(path)
	if err != nil {
		return ""
	}
	return plain
}
