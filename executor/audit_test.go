package executor_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/statedir"
)

// audited verifies the whole audit log in a state directory, with the record of a result
// in it, and returns all records of that run and their text.
func audited(t *testing.T, state string, res api.Result) (records []audit.Record, text string) {
	t.Helper()
	if res.Audit == nil {
		t.Fatalf("the result does not say where its record is: %+v", res)
	}
	dir := statedir.Audit(state)
	key, err := audit.CurrentKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	var export bytes.Buffer
	if err := audit.Export(&export, dir, nil); err != nil {
		t.Fatal(err)
	}
	trust := audit.Trust{Keys: []audit.PublicKey{key}, Places: []audit.Place{audit.Place(*res.Audit)}}
	_, err = audit.Verify(&export, trust, func(e audit.Entry) error {
		text += string(e.Text)
		if r, err := e.Run(); err == nil && r.Execution == res.ExecutionID {
			records = append(records, r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return records, text
}

// TestAudit finds the record of a run in the log once its result is there.
//
// oracle: the statements of the log, as they were signed
func TestAudit(t *testing.T) {
	h := start(t)
	res := h.post(strings.Replace(command("echo kept >kept.txt; echo out; echo "+secretKey+"; exit 3", `"artifacts":["*.txt"]`),
		`"config"`, `"opts":{"taskId":"7","workflow":{"definition":"release","version":"1.0.0","instance":"42","task":"publish `+secretKey+`"}},"config"`, 1))
	records, text := audited(t, h.config.State, res)
	if len(records) != 1 {
		t.Fatalf("%d records", len(records))
	}
	if strings.Contains(text, secretKey) || strings.Contains(text, testToken) {
		t.Error("a secret is in the log")
	}
	r := records[0]
	output := sha256.Sum256([]byte(res.Output))
	switch {
	case r.Workflow != audit.Workflow{Definition: "release", Version: "1.0.0", Instance: "42"} || r.Task != audit.Task{ID: "7", Name: "publish [ANTHROPIC_API_KEY redacted]"}:
		t.Errorf("workflow %+v, task %+v", r.Workflow, r.Task)
	case r.Command.Argv[0] != "sh" || r.Command.Directory != "/workspace" || !slices.Contains(r.Command.Environment, "PATH") || !slices.Equal(r.Command.Secrets, []string{"ANTHROPIC_API_KEY"}):
		t.Errorf("command %+v", r.Command)
	case len(r.Artifacts) != 1 || r.Artifacts[0].SHA256 != res.Artifacts[0].SHA256 || r.Artifacts[0].Name != "kept.txt":
		t.Errorf("artifacts %+v", r.Artifacts)
	case r.Sandbox.Provider != "docker" || r.Sandbox.Isolation != "container" || r.Sandbox.ID == "" || r.Sandbox.ID != res.Isolation.Sandbox || r.Sandbox.Image == "" || r.Sandbox.ImageDigest != res.Isolation.ImageDigest || len(r.Sandbox.ImageDigest) != len("sha256:")+64:
		t.Errorf("sandbox %+v", r.Sandbox)
	case r.Network.Policy != "strict" || r.Network.Digest != res.Receipt.Digest || !r.Network.Boundary.Passed || len(r.Network.Boundary.SHA256) != 64:
		t.Errorf("network %+v", r.Network)
	case r.Outcome.State != audit.StateFinished || r.Outcome.Code != string(api.CodeCommandFailed) || *r.Outcome.ExitCode != 3 || r.Outcome.OutputSHA256 != hex.EncodeToString(output[:]):
		t.Errorf("outcome %+v", r.Outcome)
	case r.Profile.Effective == "" || r.Profile.Effective != res.EffectivePolicy.EffectiveProfile || r.Profile.PolicyVersion != res.EffectivePolicy.PolicyVersion:
		t.Errorf("profile %+v, policy %+v", r.Profile, res.EffectivePolicy)
	case r.Agent.Name != "command" || len(r.Agent.PromptSHA256) != 64 || r.Principal == "":
		t.Errorf("agent %+v of %q", r.Agent, r.Principal)
	}
	var receipt any
	if err := json.Unmarshal(r.Network.Receipt, &receipt); err != nil || !strings.Contains(string(r.Network.Receipt), `"policy":"strict"`) {
		t.Errorf("receipt %s, %v", r.Network.Receipt, err)
	}
	// The tree is over the lines of all events but that with the result.
	data, err := os.ReadFile(filepath.Join(h.config.State, "executions", res.ExecutionID, "events.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	var tree audit.EventTree
	lines := slices.Collect(bytes.Lines(data))
	for _, line := range lines[:len(lines)-1] {
		tree.Add(line)
	}
	if want := tree.Events("/v1/executions/" + res.ExecutionID + "/events"); r.Events != want || want.Count < 5 {
		t.Errorf("events %+v, want %+v", r.Events, want)
	}
	if _, err := os.Stat(filepath.Join(h.config.State, "executions", res.ExecutionID, "audit.json")); err == nil {
		t.Error("the draft is still there")
	}
}

// TestAuditCannotBeWritten has the log refuse a record: no run is accepted until it is
// written, and then it is there.
func TestAuditCannotBeWritten(t *testing.T) {
	h := start(t)
	first := h.post(command("true"))
	file := filepath.Join(statedir.Audit(h.config.State), "records", "000000000.ndjson")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(bytes.Clone(whole), "no record\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	unwritten := h.post(command("true"))
	if unwritten.Audit != nil || !unwritten.Success {
		t.Errorf("result %+v", unwritten)
	}
	if resp, data := h.do("POST", "/v1/executions", command("true")); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(data), "audit log") {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if resp, data := h.do("GET", "/readyz", ""); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(data), "audit log") {
		t.Errorf("%d %s", resp.StatusCode, data)
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	last := h.post(command("true"))
	if last.Audit == nil || last.Audit.Index != first.Audit.Index+2 {
		t.Errorf("the records are at %+v and %+v", first.Audit, last.Audit)
	}
	last.ExecutionID = unwritten.ExecutionID
	if records, _ := audited(t, h.config.State, last); len(records) != 1 {
		t.Errorf("%d records of the run that had none", len(records))
	}
}
