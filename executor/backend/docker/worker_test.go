package docker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/statedir"
)

// as makes a call of the API with a token, and returns status and answer.
func (h *house) as(token, path, body string) (int, []byte) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, data
}

// TestWorkerIsWhatWasApproved: on a real engine, code reaches a sandbox once another principal
// has approved it, byte for byte; changed by one byte it is refused and pending, and reaches
// none until that is approved, too. All of it is in the log, which verifies offline.
//
// probe: T7
// oracle: what the sandbox reads of the code; the log under its public key
func TestWorkerIsWhatWasApproved(t *testing.T) {
	h := newHouse(t)
	principal := func(name string) string {
		var made api.Token
		if err := json.Unmarshal(h.ask(http.MethodPost, "/v1/tokens", `{"principal":"`+name+`","rights":["run","read","approve"]}`), &made); err != nil || made.Token == "" {
			t.Fatalf("%+v, %v", made, err)
		}
		return made.Token
	}
	alice, bob := principal("alice"), principal("bob")
	var res api.Result
	for i, code := range []string{"first, and some more", "first, and some morf"} {
		request := fmt.Sprintf(`{"prompt":"go","config":{"agent":"command","argv":["/tool","cat","/run/sallyport/worker/code"]},"opts":{"worker":{"name":"w","code":{"code":%q}}}}`, code)
		status, data := h.as(alice, "/v1/executions", request)
		var refused struct {
			Details struct{ Approval api.Approval }
		}
		if err := json.Unmarshal(data, &refused); err != nil || status != 403 || refused.Details.Approval.State != api.ApprovalPending {
			t.Fatalf("version %d: %d %s, %v", i, status, data, err)
		}
		a := refused.Details.Approval
		decision := fmt.Sprintf(`{"seq":%d}`, a.Seq)
		if status, data := h.as(alice, "/v1/approvals/"+a.ID+"/approve", decision); status != 403 {
			t.Errorf("who asked approves: %d %s", status, data)
		}
		if status, data := h.as(bob, "/v1/approvals/"+a.ID+"/approve", decision); status != 200 {
			t.Fatalf("another principal approves: %d %s", status, data)
		}
		status, data = h.as(alice, "/v1/executions", request)
		if err := json.Unmarshal(data, &res); err != nil || status != 200 || !res.Success || res.Output != code {
			t.Errorf("approved: %d %s, %v", status, data, err)
		}
	}
	dir := statedir.Audit(h.stack.State)
	key, err := audit.CurrentKey(dir)
	var export bytes.Buffer
	if err == nil {
		err = audit.Export(&export, dir, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	trust := audit.Trust{Keys: []audit.PublicKey{key}, Places: []audit.Place{audit.Place(*res.Audit)}}
	decisions := 0
	_, err = audit.Verify(bytes.NewReader(export.Bytes()), trust, func(e audit.Entry) error {
		if d, err := e.Decision(); err == nil && d.Principal == "bob" && d.State == api.ApprovalApproved {
			decisions++
		}
		return nil
	})
	if err != nil || decisions != 2 {
		t.Errorf("%d decisions in the log, %v", decisions, err)
	}
	bad := bytes.Replace(export.Bytes(), []byte(`"payload":"ey`), []byte(`"payload":"ez`), 1)
	if _, err := audit.Verify(bytes.NewReader(bad), trust, nil); err == nil {
		t.Error("control: it verifies with a changed byte")
	}
}
