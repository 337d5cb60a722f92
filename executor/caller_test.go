package executor_test

import (
	"net/http"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/caller"
)

// TestCallers has callers of other tenants and of fewer rights beside the operator: what
// belongs to another tenant does not exist for them, and what they may not do is refused
// before it is looked at.
//
// probe: T3, T4
// oracle: the same calls by whose run it is
func TestCallers(t *testing.T) {
	_, profiles := withProfiles(t, strings.Replace(governed(whole), "acme", "other", 1))
	h := start(t, profiles)
	tokens := map[string]caller.Caller{
		"the-token-of-another-tenant": {Tenant: "other", Principal: "p", Rights: caller.Run | caller.Read},
		"the-token-of-a-reader":       {Principal: "reader", Rights: caller.Read},
		"the-token-of-nobody":         {Principal: "nobody"},
	}
	for token, c := range tokens {
		if err := h.executor.Know(token, c); err != nil {
			t.Fatal(err)
		}
	}
	const other, reader, nobody = "the-token-of-another-tenant", "the-token-of-a-reader", "the-token-of-nobody"
	id := h.begin(command("echo begun; sleep 60"), "Idempotency-Key", "k")
	h.awaitText(id, "begun")
	path := "/v1/executions/" + id
	for _, tt := range []struct {
		token, method, path string
		want                int
	}{
		{testToken, "GET", path, 200},
		{other, "GET", path, 404},
		{other, "GET", path + "/events", 404},
		{other, "GET", path + "/artifacts", 404},
		{other, "DELETE", path, 404},
		{other, "GET", path + "?tenant=", 404},
		{other, "GET", path + "?tenant=all", 404},
		{other, "GET", path + "?tenant=other", 404},
		{other, "DELETE", path + "?tenant=all", 404},
		{other, "GET", "/v1/executions?tenant=", 404},
		{other, "GET", "/v1/executions?tenant=other", 200},
		{reader, "GET", "/v1/executions?tenant=other", 404},
		{other, "GET", "/v1/tokens", 403},
		{other, "GET", "/v1/capabilities", 200},
		{other, "POST", "/v1/boundary/check", 403},
		{reader, "GET", path, 200},
		{reader, "DELETE", path, 403},
		{reader, "POST", "/v1/executions", 403},
		{nobody, "GET", path, 403},
		{nobody, "GET", "/v1/capabilities", 403},
		{nobody, "GET", "/nowhere", 404},
		{nobody, "GET", "/healthz", 200},
		{"the-token-of-no-caller", "GET", path, 401},
		{"the-token-of-no-caller", "GET", path + "?tenant=all", 401},
		{"the-token-of-no-caller", "GET", "/nowhere", 401},
	} {
		body := ""
		if tt.method == http.MethodPost {
			body = command("true")
		}
		if resp, data := h.do(tt.method, tt.path, body, "Authorization", "Bearer "+tt.token); resp.StatusCode != tt.want {
			t.Errorf("%s: %s %s: %s %s, want %d", tt.token, tt.method, tt.path, resp.Status, data, tt.want)
		}
	}
	if h.executor.Cancel(tokens[other], id) {
		t.Error("another tenant cancelled the run")
	}
	resp, data := h.do(http.MethodGet, "/v1/executions", "", "Authorization", "Bearer "+other)
	if list := decode[api.ExecutionList](t, resp, data, http.StatusOK); len(list.Executions) != 0 {
		t.Errorf("another tenant lists %+v", list)
	}
	if list := get[api.ExecutionList](h, "/v1/executions"); len(list.Executions) != 1 {
		t.Errorf("control: the operator lists %+v", list)
	}
	// The same key of another tenant is another key: with the operator's, the request
	// would be refused for being another one.
	theirs := h.begin(command("echo theirs"), "Idempotency-Key", "k", "Authorization", "Bearer "+other)
	if theirs == id {
		t.Error("another tenant's key led to the operator's run")
	}
	if resp, _ := h.do(http.MethodGet, "/v1/executions/"+theirs, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the operator sees another tenant's run: %s", resp.Status)
	}
	for _, tenant := range []string{"other", "all"} {
		if x := get[api.Execution](h, "/v1/executions/"+theirs+"?tenant="+tenant); x.ID != theirs {
			t.Errorf("the operator does not see it in %s: %+v", tenant, x)
		}
	}
	if list := get[api.ExecutionList](h, "/v1/executions?tenant=other"); len(list.Executions) != 1 || list.Executions[0].ID != theirs {
		t.Errorf("the operator lists of the other %+v", list)
	}
	if list := get[api.ExecutionList](h, "/v1/executions?tenant=all"); len(list.Executions) != 2 {
		t.Errorf("the operator lists of all %+v", list)
	}
	if resp, data := h.do(http.MethodPost, "/v1/executions?tenant=other", command("true")); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("the operator begins a run of another tenant's: %s %s", resp.Status, data)
	}
	resp, data = h.do(http.MethodGet, "/v1/executions/"+theirs+"/events?follow=true", "", "Authorization", "Bearer "+other)
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(data), "theirs") {
		t.Errorf("control: %s %s", resp.Status, data)
	}
	h.do(http.MethodDelete, path, "")
	h.finish(id)
}
