package executor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
)

// token has the operator make a token; the query may name a tenant.
func (h *harness) token(query, principal string, rights ...string) api.Token {
	h.t.Helper()
	body, _ := json.Marshal(api.TokenRequest{Principal: principal, Rights: rights})
	resp, data := h.do(http.MethodPost, "/v1/tokens"+query, string(body))
	return decode[api.Token](h.t, resp, data, http.StatusCreated)
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// TestTokensOverHTTP has an operator make tokens for a tenant, whose own operator goes on
// from there: nobody gives a right that it lacks, nor sees or revokes a token of another
// tenant's.
//
// probe: T3, T4
// oracle: the same call by who may
func TestTokensOverHTTP(t *testing.T) {
	_, profiles := withProfiles(t, governed(whole))
	h := start(t, profiles)
	admin := h.token("?tenant=acme", "admin", "read", "operate")
	if admin.Tenant != "acme" || admin.CreatedBy != "operator" || !strings.HasPrefix(admin.Token, "sallyport_") ||
		time.Until(admin.ExpiresAt).Round(time.Hour) != caller.DefaultLife || !slices.Equal(admin.Rights, []string{"read", "operate"}) {
		t.Fatalf("%+v", admin)
	}
	mine := h.token("", "me", "run", "read", "approve", "operate")
	for _, tt := range []struct {
		by, query, body string
		want            int
		code            api.Code
		detail          string
	}{
		{admin.Token, "", `{"principal":"ci","rights":["read"]}`, 201, "", ""},
		{admin.Token, "?tenant=acme", `{"principal":"ci","rights":["read"]}`, 201, "", ""},
		{admin.Token, "", `{"principal":"ci","rights":["run"]}`, 403, api.CodeForbidden, "run"},
		{admin.Token, "", `{"principal":"ci","rights":["read","approve"]}`, 403, api.CodeForbidden, "approve"},
		{admin.Token, "?tenant=", `{"principal":"ci","rights":["read"]}`, 404, api.CodeNotFound, "tenant"},
		{mine.Token, "?tenant=acme", `{"principal":"ci","rights":["run"]}`, 201, "", ""},
		{mine.Token, "?tenant=nobody", `{"principal":"ci","rights":["run"]}`, 422, api.CodeInvalidRequest, "nobody"},
		{mine.Token, "?tenant=all", `{"principal":"ci","rights":["run"]}`, 422, api.CodeInvalidRequest, "all"},
		{mine.Token, "?tenant=acme&tenant=acme", `{"principal":"ci","rights":["run"]}`, 400, api.CodeInvalidRequest, "tenant"},
		{mine.Token, "", `{"principal":"operator","rights":["run"]}`, 422, api.CodeInvalidRequest, "operator"},
		{mine.Token, "", `{"principal":"a b","rights":["run"]}`, 422, api.CodeInvalidRequest, "principal"},
		{mine.Token, "", `{"principal":"ci"}`, 422, api.CodeInvalidRequest, "rights"},
		{mine.Token, "", `{"principal":"ci","rights":["admin"]}`, 422, api.CodeInvalidRequest, "run, read, approve, operate"},
		{mine.Token, "", `{"principal":"ci","rights":["run"],"expiresAt":"2001-01-01T00:00:00Z"}`, 422, api.CodeInvalidRequest, "expiresAt"},
		{mine.Token, "", `{"principal":"ci","rights":["run"],"expiresAt":"2101-01-01T00:00:00Z"}`, 422, api.CodeInvalidRequest, "366"},
		{mine.Token, "", `{"principal":"ci","rights":["run"],"expires":"x"}`, 400, api.CodeInvalidRequest, "expiresAt"},
		{mine.Token, "", `{"principal":"ci","rights":["run"],"Rights":["read"]}`, 400, api.CodeInvalidRequest, "rights"},
	} {
		resp, data := h.do(http.MethodPost, "/v1/tokens"+tt.query, tt.body, bearer(tt.by)...)
		var p api.Problem
		if resp.StatusCode != tt.want || tt.code != "" && (json.Unmarshal(data, &p) != nil || p.Code != tt.code || !strings.Contains(p.Detail, tt.detail)) {
			t.Errorf("%s %s: %s %s, want %d %s %s", tt.query, tt.body, resp.Status, data, tt.want, tt.code, tt.detail)
		}
	}
	list := func(token, query string) (principals []string) {
		resp, data := h.do(http.MethodGet, "/v1/tokens"+query, "", bearer(token)...)
		for _, token := range decode[api.TokenList](t, resp, data, http.StatusOK).Tokens {
			if token.Token != "" {
				t.Errorf("the list has the text of %s", token.ID)
			}
			principals = append(principals, token.Tenant+"/"+token.Principal)
		}
		slices.Sort(principals)
		return principals
	}
	acme := []string{"acme/admin", "acme/ci", "acme/ci", "acme/ci"}
	for _, tt := range []struct {
		by, query string
		want      []string
	}{{admin.Token, "", acme}, {mine.Token, "", []string{"/me"}}, {mine.Token, "?tenant=acme", acme}, {testToken, "?tenant=all", append([]string{"/me"}, acme...)}} {
		if got := list(tt.by, tt.query); !slices.Equal(got, tt.want) {
			t.Errorf("tokens%s: %v, want %v", tt.query, got, tt.want)
		}
	}
	revoke := func(token, path string) int {
		resp, _ := h.do(http.MethodDelete, "/v1/tokens/"+path, "", bearer(token)...)
		return resp.StatusCode
	}
	for _, path := range []string{mine.ID, mine.ID + "?tenant=", "nosuch"} {
		if got := revoke(admin.Token, path); got != http.StatusNotFound {
			t.Errorf("a tenant revokes %s: %d", path, got)
		}
	}
	if got := revoke(mine.Token, admin.ID); got != http.StatusNotFound {
		t.Errorf("another tenant's token, without naming the tenant: %d", got)
	}
	if got := revoke(mine.Token, admin.ID+"?tenant=acme"); got != http.StatusOK {
		t.Errorf("control: %d", got)
	}
	if got := revoke(admin.Token, mine.ID); got != http.StatusUnauthorized {
		t.Errorf("a revoked token: %d", got)
	}
	for _, text := range []string{admin.Token, mine.Token} {
		if strings.Contains(h.log.String(), text) {
			t.Error("the log has the text of a token")
		}
	}
	for _, line := range []string{`"msg":"token made","token":"` + admin.ID + `","tenant":"acme","principal":"admin"`, `"msg":"token revoked","token":"` + admin.ID + `"`} {
		if !strings.Contains(h.log.String(), line) {
			t.Errorf("the log does not have %s", line)
		}
	}
}

// TestTenantThatIsGone: tokens of a tenant that the file of profiles has no longer are
// nobody's.
func TestTenantThatIsGone(t *testing.T) {
	path, profiles := withProfiles(t, governed(whole))
	h := start(t, profiles)
	token := h.token("?tenant=acme", "ci", "read").Token
	if resp, _ := h.do(http.MethodGet, "/v1/executions", "", bearer(token)...); resp.StatusCode != http.StatusOK {
		t.Fatalf("control: %s", resp.Status)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(governed(whole), "acme", "other")), 0o600); err != nil {
		t.Fatal(err)
	}
	if resp, _ := h.do(http.MethodGet, "/v1/executions", "", bearer(token)...); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("once the tenant is gone: %s", resp.Status)
	}
}

// TestTokensSurviveRestart: what was made before is good after, and what was revoked is not.
func TestTokensSurviveRestart(t *testing.T) {
	h := start(t)
	kept, revoked := h.token("", "kept", "read"), h.token("", "revoked", "read")
	h.do(http.MethodDelete, "/v1/tokens/"+revoked.ID, "")
	h.end()
	h.boot()
	for token, want := range map[string]int{kept.Token: 200, revoked.Token: 401} {
		if resp, _ := h.do(http.MethodGet, "/v1/executions", "", bearer(token)...); resp.StatusCode != want {
			t.Errorf("%s, want %d", resp.Status, want)
		}
	}
}

// TestOpenCallsEndWithTheirToken has calls of all kinds wait when their token is revoked,
// or expires: each ends at once, those that have not answered yet with 401. The run goes
// on, and the stream of another token with it.
//
// probe: T4
// oracle: the stream of another token, which goes on; the result of the run
func TestOpenCallsEndWithTheirToken(t *testing.T) {
	for name, end := range map[string]func(h *harness, token api.Token){
		"revoked": func(h *harness, token api.Token) {
			if resp, data := h.do(http.MethodDelete, "/v1/tokens/"+token.ID, ""); resp.StatusCode != http.StatusOK {
				h.t.Errorf("%s %s", resp.Status, data)
			}
		},
		"expired": func(h *harness, token api.Token) { time.Sleep(time.Until(token.ExpiresAt)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(c *executor.Config) { c.MaxRuns = 3 })
			id := h.begin(command("echo begun; sleep 60"))
			h.awaitText(id, "begun")
			life := map[string]time.Duration{"revoked": time.Hour, "expired": 6 * time.Second}[name]
			body, _ := json.Marshal(api.TokenRequest{Principal: "p", Rights: []string{"run", "read"}, ExpiresAt: time.Now().Add(life).Format(time.RFC3339Nano)})
			resp, data := h.do(http.MethodPost, "/v1/tokens", string(body))
			token := decode[api.Token](t, resp, data, http.StatusCreated)

			follow := func(accept, bearer string) *http.Response {
				req := h.request(http.MethodGet, "/v1/executions/"+id+"/events?follow=true", "", "Accept", accept, "Authorization", "Bearer "+bearer)
				resp, err := h.client.Do(req)
				if err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("%v %v", resp, err)
				}
				return resp
			}
			ndjson, sse, other := follow("application/x-ndjson", token.Token), follow("text/event-stream", token.Token), follow("application/x-ndjson", testToken)
			defer other.Body.Close()
			waiting := make(chan string)
			go func() {
				resp, data := h.do(http.MethodPost, "/v1/executions", command("echo waits; sleep 60"), append(bearer(token.Token), "Idempotency-Key", "w")...)
				waiting <- fmt.Sprintf("%d %s", resp.StatusCode, data)
			}()
			for h.running() < 2 {
				time.Sleep(10 * time.Millisecond)
			}
			end(h, token)
			for kind, resp := range map[string]*http.Response{"ndjson": ndjson, "sse": sse} {
				data, err := io.ReadAll(resp.Body) // it breaks off
				if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(data), "begun") || strings.Contains(string(data), `"type":"result"`) {
					t.Errorf("%s: %v\n%s", kind, err, data)
				}
				resp.Body.Close()
			}
			if got := <-waiting; !strings.HasPrefix(got, "401 ") || !strings.Contains(got, "token") {
				t.Errorf("who waited for a result got %s", got)
			}
			if resp, _ := h.do(http.MethodGet, "/v1/executions/"+id, "", bearer(token.Token)...); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("the next call: %s", resp.Status)
			}
			if n := h.running(); n != 2 {
				t.Errorf("%d runs are under way, want both", n)
			}
			for _, x := range get[api.ExecutionList](h, "/v1/executions").Executions {
				h.do(http.MethodDelete, "/v1/executions/"+x.ID, "")
				h.finish(x.ID)
			}
			if data, err := io.ReadAll(other.Body); err != nil || !strings.Contains(string(data), `"type":"result"`) {
				t.Errorf("control: another token's stream: %v\n%s", err, data)
			}
		})
	}
}

// TestDownloadEndsWithItsToken has a reader that stops in the middle of a large artifact:
// what it gets once its token is revoked is what was on its way already.
//
// probe: T4
// oracle: the same artifact with another token, whole
func TestDownloadEndsWithItsToken(t *testing.T) {
	const size = 48 << 20
	h := start(t, limit(func(l *plan.Limits) { l.Artifacts.Bytes = 2 * size; l.WorkspaceBytes = 3 * size }))
	id := h.begin(command(fmt.Sprintf("head -c %d /dev/zero > big", size), `"artifacts":["big"]`))
	if res := h.finish(id); len(res.Artifacts) != 1 || res.Artifacts[0].Size != size {
		t.Fatalf("%+v", res)
	}
	download := func(token string, meanwhile func()) (int64, error) {
		resp, err := http.DefaultClient.Do(h.request(http.MethodGet, "/v1/executions/"+id+"/artifacts/big", "", bearer(token)...))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", resp, err)
		}
		defer resp.Body.Close()
		meanwhile()
		return io.Copy(io.Discard, resp.Body)
	}
	token := h.token("", "p", "read")
	if n, err := download(token.Token, func() {}); n != size || err != nil {
		t.Errorf("control: %d, %v", n, err)
	}
	n, err := download(token.Token, func() { h.do(http.MethodDelete, "/v1/tokens/"+token.ID, "") })
	if n >= size || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("once revoked: %d of %d, %v", n, size, err)
	}
}

// running is how many runs are under way.
func (h *harness) running() int {
	return len(get[api.ExecutionList](h, "/v1/executions?state=running").Executions)
}
