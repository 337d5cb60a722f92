package compose_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/client"
)

const twoTenants = `version: 1
policyVersion: 1
default: p
tenants:
  acme: {profiles: all, roots: [ROOT/acme], quotas: {running: 5}}
  beta: {profiles: all, roots: [ROOT/beta]}
profiles:
  p: {egress: all, tasks: all, approval: none}
`

// A tenantCaller makes calls with a token of a tenant.
type tenantCaller struct {
	t      *testing.T
	tenant string
	id     string // of the token
	token  string
}

// callerOf has the operator make a token for a tenant, whose rights are all.
func callerOf(t *testing.T, tenant string, expires time.Time) tenantCaller {
	t.Helper()
	operator := &client.Client{Addr: st.Addr, Token: st.Token, Tenant: tenant}
	r := api.TokenRequest{Principal: "lead", Rights: []string{"run", "read", "approve", "operate"}}
	if !expires.IsZero() {
		r.ExpiresAt = expires.Format(time.RFC3339Nano)
	}
	made, err := operator.MakeToken(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return tenantCaller{t, tenant, made.ID, made.Token}
}

// send makes a call; header holds names and values in turn.
func (c tenantCaller) send(ctx context.Context, method, path, body string, header ...string) *http.Response {
	c.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, st.Addr+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := st.web.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// call makes a call and returns the whole answer.
func (c tenantCaller) call(method, path, body string, header ...string) (int, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	resp := c.send(ctx, method, path, body, header...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// run starts a run and waits until its agent has said something.
func (c tenantCaller) run(script, config string, header ...string) (id string) {
	c.t.Helper()
	argv, _ := json.Marshal([]string{"bash", "-c", script})
	status, data := c.call("POST", "/v1/executions", `{"prompt":"go","config":{"agent":"command","argv":`+string(argv)+config+`}}`, append(header, "Prefer", "respond-async")...)
	var x api.Execution
	if err := json.Unmarshal([]byte(data), &x); err != nil || status != http.StatusAccepted {
		c.t.Fatalf("%s begins a run: %d %s", c.tenant, status, data)
	}
	resp := c.send(c.t.Context(), "GET", "/v1/executions/"+x.ID+"/events?follow=true", "")
	defer resp.Body.Close()
	for d := json.NewDecoder(resp.Body); ; {
		var ev api.Event
		if err := d.Decode(&ev); err != nil || ev.Result != nil {
			c.t.Fatalf("%s's run said nothing: %v %+v", c.tenant, err, ev.Result)
		}
		if ev.Type == api.EventOutput {
			return x.ID
		}
	}
}

// TestTenants has two teams on one executor: neither lists, reads, follows, cancels or
// guesses the other's runs, artifacts and tokens, nor uses its keys and directories. What
// is the other's is answered like what is not there at all.
//
// probe: T3
// oracle: the same calls by whose they are, and by the operator, who names the tenant
func TestTenants(t *testing.T) {
	acme, beta := startTenants(t)
	const word = "the-secret-of-acme"
	done := acme.run("echo "+word+" | tee kept.txt", `,"artifacts":["*.txt"]`, "Idempotency-Key", "k")
	open := acme.run("echo "+word+"; sleep 600", "")
	await(t, acme, done)
	guess := open[:len(open)-1] + map[bool]string{true: "0", false: "1"}[strings.HasSuffix(open, "1")]

	operator := tenantCaller{t, "", "", st.Token}
	for _, tt := range []struct{ method, path string }{
		{"GET", "/v1/executions/RUN"}, {"GET", "/v1/executions/RUN/events"}, {"GET", "/v1/executions/RUN/events?follow=true"},
		{"GET", "/v1/executions/RUN/artifacts"}, {"GET", "/v1/executions/RUN/artifacts/kept.txt"}, {"DELETE", "/v1/executions/RUN"},
	} {
		for _, run := range []string{done, open} {
			status, theirs := beta.call(tt.method, strings.Replace(tt.path, "RUN", run, 1), "")
			_, nowhere := beta.call(tt.method, strings.Replace(tt.path, "RUN", guess, 1), "")
			if status != http.StatusNotFound || theirs != nowhere {
				t.Errorf("%s %s by another tenant: %d %s; of one that is not there: %s", tt.method, tt.path, status, theirs, nowhere)
			}
		}
		path := strings.Replace(tt.path, "RUN", done, 1)
		if status, data := acme.call(tt.method, path, ""); status != http.StatusOK {
			t.Errorf("control: %s %s: %d %s", tt.method, path, status, data)
		}
		if status, _ := operator.call(tt.method, path, ""); status != http.StatusNotFound {
			t.Errorf("%s %s by the operator: %d", tt.method, path, status)
		}
		named := path + map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "tenant=acme"
		if status, data := operator.call(tt.method, named, ""); status != http.StatusOK {
			t.Errorf("control: %s %s by the operator: %d %s", tt.method, named, status, data)
		}
		if status, _ := beta.call(tt.method, named, ""); status != http.StatusNotFound {
			t.Errorf("%s %s by another tenant: %d", tt.method, named, status)
		}
	}
	if status, data := acme.call("GET", "/v1/executions/"+open, ""); status != http.StatusOK || !strings.Contains(data, `"running"`) {
		t.Errorf("the run did not survive: %d %s", status, data)
	}

	// Lists, tokens, keys, directories.
	for _, path := range []string{"/v1/executions", "/v1/executions?before=7zzzzzzzzzzzzzzzzzzzzzzzzz", "/v1/tokens", "/v1/approvals", "/v1/capabilities"} {
		_, theirs := beta.call("GET", path, "")
		_, own := acme.call("GET", path, "")
		for _, secret := range []string{word, done, open, acme.id, "acme"} {
			if strings.Contains(theirs, secret) {
				t.Errorf("%s tells another tenant %q: %s", path, secret, theirs)
			}
		}
		if strings.HasPrefix(path, "/v1/executions") && !strings.Contains(own, open) || path == "/v1/tokens" && !strings.Contains(own, acme.id) {
			t.Errorf("control: %s: %s", path, own)
		}
	}
	if status, _ := beta.call("DELETE", "/v1/tokens/"+acme.id, ""); status != http.StatusNotFound {
		t.Errorf("another tenant revokes a token: %d", status)
	}
	if status, _ := beta.call("GET", "/v1/audit", ""); status != http.StatusNotFound {
		t.Errorf("the audit log over the API: %d", status)
	}
	other := beta.run("echo mine", "", "Idempotency-Key", "k") // acme's key with another request would be refused
	if other == done {
		t.Error("another tenant's key led to the run")
	}
	await(t, beta, other)
	for who, want := range map[*tenantCaller]int{&acme: http.StatusOK, &beta: http.StatusUnprocessableEntity} {
		status, data := who.call("POST", "/v1/executions", fmt.Sprintf(`{"prompt":"go","config":{"agent":"command","argv":["cat","file"],"cwd":%q}}`, filepath.Join(st.root, "acme")))
		if status != want || (want == http.StatusOK) != strings.Contains(data, "of a directory") {
			t.Errorf("%s in acme's directory: %d %s", who.tenant, status, data)
		}
	}
	acme.call("DELETE", "/v1/executions/"+open, "")
	await(t, acme, open)
}

// startTenants has the executor know two tenants, with a directory each.
func startTenants(t *testing.T) (acme, beta tenantCaller) {
	t.Helper()
	for _, name := range []string{"acme", "beta"} {
		dir := filepath.Join(st.root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of a directory\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, 10001, 10001); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(st.state, "profiles.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(twoTenants, "ROOT", st.root)), 0o644); err != nil {
		t.Fatal(err)
	}
	reconfigure(t, "SALLYPORT_PROFILES: "+path)
	return callerOf(t, "acme", time.Time{}), callerOf(t, "beta", time.Time{})
}

// await waits until a run has ended.
func await(t *testing.T, c tenantCaller, id string) {
	t.Helper()
	if status, data := c.call("GET", "/v1/executions/"+id+"/events?follow=true", ""); status != http.StatusOK || !strings.Contains(data, `"type":"result"`) {
		t.Fatalf("%s: %d %s", id, status, data)
	}
}

// TestTokensEndStreams follows a run with three tokens, of which one is revoked and one
// expires: their streams break off at once, and the third sees the end.
//
// probe: T4
// oracle: the stream of the third token
func TestTokensEndStreams(t *testing.T) {
	lasting, _ := startTenants(t)
	revoked, expired := callerOf(t, "acme", time.Time{}), callerOf(t, "acme", time.Now().Add(20*time.Second))
	id := lasting.run("echo begun; sleep 600", "")
	path := "/v1/executions/" + id + "/events?follow=true"
	streams := map[string]io.ReadCloser{}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for name, c := range map[string]tenantCaller{"revoked": revoked, "expired": expired, "lasting": lasting} {
		resp := c.send(ctx, "GET", path, "")
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("control: %s: %s", name, resp.Status)
		}
		streams[name] = resp.Body
	}
	if status, data := lasting.call("DELETE", "/v1/tokens/"+revoked.id, ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, data)
	}
	for _, name := range []string{"revoked", "expired"} {
		data, _ := io.ReadAll(streams[name]) // it breaks off
		if ctx.Err() != nil || !strings.Contains(string(data), "begun") || strings.Contains(string(data), `"type":"result"`) {
			t.Errorf("%s: %s", name, data)
		}
	}
	for _, c := range []tenantCaller{revoked, expired} {
		if status, data := c.call("GET", "/v1/executions", ""); status != http.StatusUnauthorized || strings.Contains(data, "revoked") || strings.Contains(data, "expired") {
			t.Errorf("afterwards: %d %s", status, data)
		}
	}
	if status, data := lasting.call("DELETE", "/v1/executions/"+id, ""); status != http.StatusAccepted {
		t.Errorf("control: %d %s", status, data)
	}
	if data, err := io.ReadAll(streams["lasting"]); err != nil || !strings.Contains(string(data), `"type":"result"`) {
		t.Errorf("control: %v %s", err, data)
	}
}
