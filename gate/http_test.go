package gate

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/firewall/allowlist"
	"sallyport/gate/control"
)

func TestHealth(t *testing.T) {
	g := start(t, upstream(t), func(d *Daemon) { d.Warnings = []string{"beware"} })
	h, err := g.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h.Status != "ok" || h.Instance == "" || h.Digest != g.daemon.Allowlist.Digest() || h.Cells != 0 ||
		strings.Join(h.Policies, " ") != "open other strict" || h.Version != "v0.0.0-test" || h.Warnings[0] != "beware" {
		t.Errorf("health %+v", h)
	}
}

// What is not a call of the API is a problem document, and changes nothing.
//
// probe: L12, N8
// oracle: the problem document of each, no lease, and a good call afterwards
func TestBadCalls(t *testing.T) {
	g := start(t, upstream(t), nil)
	lease, err := json.Marshal(cellLease(1, "run-1", "strict"))
	if err != nil {
		t.Fatal(err)
	}
	body := string(lease)
	for _, test := range []struct {
		method, target, body string
		status               int
		code                 string
	}{
		{"GET", "/", "", 404, control.CodeNotFound},
		{"GET", "/metric", "", 404, control.CodeNotFound},
		{"GET", "/debug/pprof/", "", 404, control.CodeNotFound},
		{"POST", "/v1/cells/c1", body, 404, control.CodeNotFound},
		{"PUT", "/v1/cells/", body, 404, control.CodeNotFound},
		{"PUT", "/v1/cells/../x", body, 404, control.CodeNotFound},
		{"PUT", "/v1/cells/c1/x", body, 404, control.CodeNotFound},
		{"PUT", "/v1/cells/..%2Fx", body, 400, control.CodeInvalid},
		{"DELETE", "/v1/cells/..%2Fx", "", 400, control.CodeInvalid},
		{"GET", "/v1/cells/%00", "", 400, control.CodeInvalid},
		{"DELETE", "/v1/cells/c1", "", 404, control.CodeNotLeased},
		{"PUT", "/v1/cells/c1", "", 400, control.CodeInvalid},
		{"PUT", "/v1/cells/c1", "null", 400, control.CodeInvalid},
		{"PUT", "/v1/cells/c1", "[]", 400, control.CodeInvalid},
		{"PUT", "/v1/cells/c1", body + "{}", 400, control.CodeInvalid},
		{"PUT", "/v1/cells/c1", body[:len(body)-1] + `,"polcy":"open"}`, 400, control.CodeInvalid},
		{"PUT", "/v1/cells/c1", strings.Replace(body, "policy", "Policy", 1), 400, control.CodeInvalid},
		{"PUT", "/v1/cells/c1", body[:len(body)-1] + `,"policy":"open"}`, 400, control.CodeInvalid},
		{"PUT", "/v1/cells/c1", body[:len(body)-1] + `,"x":` + strings.Repeat("[", 20000) + "}", 400, control.CodeInvalid},
		{"PUT", "/v1/cells/c1", strings.Repeat(" ", maxBody) + body, 400, control.CodeInvalid},
		{"GET", "/v1/decisions?runs=x", "", 400, control.CodeInvalid},
		{"GET", "/v1/decisions?run=a%0Ab", "", 400, control.CodeInvalid},
		{"GET", "/v1/decisions?follow=maybe", "", 400, control.CodeInvalid},
		{"GET", "/v1/decisions?run=a&run=b", "", 400, control.CodeInvalid},
		{"GET", "/v1/decisions?run=none", "", 404, control.CodeNotLeased},
		{"POST", "/v1/reload", "", 501, control.CodeInvalid},
		{"POST", "/v1/judge", `{"policy":"strict","host":"a.example","port":443,"Port":1}`, 400, control.CodeInvalid},
		{"POST", "/v1/judge", `{"policy":"strict","policy":"open"}`, 400, control.CodeInvalid},
		{"POST", "/v1/judge", `{"policy":"none","host":"a.example","port":443}`, 422, control.CodeNoPolicy},
	} {
		t.Run(test.method+" "+test.target, func(t *testing.T) {
			status, text, header := g.request(t, test.method, test.target, test.body)
			var p control.Problem
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				t.Fatalf("body %q: %v", text, err)
			}
			if status != test.status || p.Status != test.status || p.Code != test.code || p.Title == "" || p.Detail == "" ||
				header.Get("Content-Type") != control.ProblemType {
				t.Errorf("%d %s %+v, want %d %s", status, header.Get("Content-Type"), p, test.status, test.code)
			}
		})
	}
	if h, err := g.Health(t.Context()); err != nil || h.Cells != 0 {
		t.Errorf("health %+v, %v", h, err)
	}
	if status, text, _ := g.request(t, "PUT", "/v1/cells/c1", body); status != 200 {
		t.Errorf("control: %d %s", status, text)
	}
}

// A reload counts for all leases, also those that run. One that fails changes
// nothing, and health says so until one succeeds.
//
// probe: P2
// oracle: what leases resolve and health says while the bad file is there, and after a
// good one
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allowlist.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := start(t, upstream(t), func(d *Daemon) {
		d.Load = func() (*allowlist.File, error) { return allowlist.Load(path) }
	})
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))

	write("version: 1\ngroups: {}\npolicies:\n  strict: {alow: [new.example]}\n")
	_, err := g.Reload(t.Context())
	wantError(t, err, 422, control.CodeReloadInvalid)
	if !strings.Contains(err.Error(), path+":4") {
		t.Errorf("error %v does not name the line", err)
	}
	h, err := g.Health(t.Context())
	if err != nil || h.Status != "ok" || h.Digest != g.daemon.Allowlist.Digest() || h.Generation != 1 {
		t.Errorf("health %+v, %v: want the policies as before", h, err)
	}
	if a := h.Allowlist; a.State != control.AllowlistStale || !strings.Contains(a.Error, path+":4") || a.Since.IsZero() {
		t.Errorf("allowlist %+v, want it stale", a)
	}
	stale := h.Allowlist.Since
	_, err = g.Reload(t.Context())
	wantError(t, err, 422, control.CodeReloadInvalid)
	if h, err := g.Health(t.Context()); err != nil || !h.Allowlist.Since.Equal(stale) {
		t.Errorf("health %+v, %v: want it stale since %v", h, err, stale)
	}
	g.lease(t, "c2", cellLease(2, "run-2", "strict"))
	g.wantResolved(t, 2, "www.site.example.")
	g.release(t, "c2")

	write("version: 1\npolicies:\n  strict: {allow: [new.example]}\n")
	h, err = g.Reload(t.Context())
	if err != nil || h.Digest == g.daemon.Allowlist.Digest() || len(h.Policies) != 1 || h.Generation != 2 ||
		h.Allowlist.State != control.AllowlistCurrent || h.Allowlist.Error != "" {
		t.Fatalf("health %+v, %v", h, err)
	}
	g.lease(t, "c2", cellLease(2, "run-2", "strict"))
	g.wantResolved(t, 2, "new.example.")
	g.wantNXDOMAIN(t, 2, "www.site.example.")
	g.wantNXDOMAIN(t, 1, "www.site.example.")
	g.wantResolved(t, 1, "new.example.")
	_, err = g.Lease(t.Context(), "c3", cellLease(3, "run-3", "open"))
	wantError(t, err, 422, control.CodeNoPolicy)
}

func TestServeNeedsItsFields(t *testing.T) {
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Daemon{}).Serve(t.Context(), ln); err == nil {
		t.Error("the zero Daemon serves")
	}
	if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
		t.Error("its listener is open")
	}
}

// request makes one raw call and returns status and body.
func (g *testGate) request(t *testing.T, method, target, body string) (int, string, http.Header) {
	t.Helper()
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return net.Dial("unix", g.Socket)
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       10 * time.Second,
	}
	req, err := http.NewRequest(method, "http://gate"+target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}
