package control

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// gate serves h where a gate would be. The real one is tested with this client
// in package gate: what follows are answers that it does not give.
func gate(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		<-done
	})
	return &Client{Socket: path}
}

// Only a problem document is a refusal: any other failure means that there is
// no gate to speak of.
func TestErrors(t *testing.T) {
	const doc = `{"title":"Conflict","status":200,"code":"cell_leased","detail":"to run r"}`
	for _, test := range []struct {
		name, kind, body string
		status           int
		refusal          bool
	}{
		{"problem", ProblemType, doc, 409, true},
		{"problem with a parameter", ProblemType + "; charset=utf-8", doc, 409, true},
		{"other type", "application/json", doc, 409, false},
		{"no JSON", ProblemType, "busy", 500, false},
		{"redirect", "text/html", "moved", 307, false},
		{"success without JSON", "application/json", "ok", 200, false},
		{"success cut off", "application/json", `{"status":"ok"`, 200, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := gate(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			_, err := c.Health(t.Context())
			var e *Error
			if err == nil || errors.As(err, &e) != test.refusal {
				t.Fatalf("error %v", err)
			}
			if test.refusal && (e.Status != test.status || e.Code != CodeLeased || e.Error() != "the gate answered 409 cell_leased: to run r") {
				t.Errorf("refusal %+v: %v", e, e)
			}
		})
	}
	_, err := (&Client{Socket: filepath.Join(t.TempDir(), "none")}).Health(t.Context())
	var e *Error
	if err == nil || errors.As(err, &e) {
		t.Errorf("no socket: %v", err)
	}
}

// The identifier of a cell is one segment of the path, whatever it holds.
func TestCellPath(t *testing.T) {
	var asked string
	c := gate(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.EscapedPath()
		io.WriteString(w, "{}")
	})
	for id, want := range map[string]string{
		"c1": "/v1/cells/c1", "../x": "/v1/cells/..%2Fx", "a?b#c": "/v1/cells/a%3Fb%23c", "a b": "/v1/cells/a%20b",
	} {
		if _, err := c.Cell(t.Context(), id); err != nil || asked != want {
			t.Errorf("%q asks for %s, %v; want %s", id, asked, err, want)
		}
	}
}

// A stream ends well only with its last line.
func TestDecisionsEnd(t *testing.T) {
	for name, test := range map[string]struct {
		body  string
		hosts string
		ok    bool
	}{
		"complete":    {`{"host":"a"}` + "\n" + `{"host":"b"}` + "\n" + `{"kind":"end"}` + "\n", "a b", true},
		"nothing":     {"", "", false},
		"no end":      {`{"host":"a"}` + "\n", "a", false},
		"cut line":    {`{"host":"a"}` + "\n" + `{"ho`, "a", false},
		"other bytes": {"\x00\n", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := gate(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, test.body) })
			var hosts []string
			var failed error
			for r, err := range c.Decisions(t.Context(), "r", true) {
				if failed = err; err == nil {
					hosts = append(hosts, r.Host)
				}
			}
			if strings.Join(hosts, " ") != test.hosts || (failed == nil) != test.ok {
				t.Errorf("%v, %v; want %q, ok %v", hosts, failed, test.hosts, test.ok)
			}
		})
	}
}

// A line that does not end is not kept: the stream breaks, long before the far side
// has sent all that it would.
func TestDecisionsEndless(t *testing.T) {
	const most = 64 << 20
	var sent atomic.Int64
	c := gate(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"host":"a"}`+"\n"+`{"host":"`)
		for piece := make([]byte, 64<<10); sent.Load() < most; {
			n, err := w.Write(bytes.ReplaceAll(piece, []byte{0}, []byte("a")))
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
		io.WriteString(w, `"}`+"\n"+`{"kind":"end"}`+"\n")
	})
	var hosts []string
	var last error
	for r, err := range c.Decisions(t.Context(), "r", true) {
		if last = err; err == nil {
			hosts = append(hosts, r.Host[:min(len(r.Host), 9)])
		}
	}
	if !slices.Equal(hosts, []string{"a"}) || !errors.Is(last, bufio.ErrTooLong) {
		t.Errorf("%q, %v after %d bytes", hosts, last, sent.Load())
	}
}

// The end of its context ends a stream, with an error.
func TestDecisionsCancelled(t *testing.T) {
	c := gate(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"host":"a"}`+"\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	n := 0
	for _, err := range c.Decisions(ctx, "", true) {
		if last = err; err == nil {
			n++
			cancel()
		}
	}
	if n != 1 || !errors.Is(last, context.Canceled) {
		t.Errorf("%d records, then %v", n, last)
	}
}
