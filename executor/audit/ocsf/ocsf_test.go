package ocsf_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"sallyport/executor/audit"
	"sallyport/executor/audit/ocsf"
)

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile("testdata/ocsf-" + ocsf.Version + ".schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("ocsf", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("ocsf")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func record() audit.Record {
	accepted := time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)
	ended, code := accepted.Add(2*time.Second), 3
	return audit.Record{
		Execution: "run-1", Tenant: "acme", Principal: "harness",
		Workflow:  audit.Workflow{Definition: "release"},
		Sandbox:   audit.Sandbox{Provider: "docker", Image: "agent:dev", ImageDigest: "sha256:ab", ID: "9be1"},
		Command:   audit.Command{Argv: []string{"pi"}, Secrets: []string{"ANTHROPIC_API_KEY"}},
		Agent:     audit.Agent{Name: "pi", Provider: "anthropic", Model: "claude", InputTokens: 5, OutputTokens: 7},
		Artifacts: []audit.Artifact{{Name: "a", SHA256: "cd"}},
		Network: audit.Network{Policy: "strict", Digest: "sha256:ef", Receipt: json.RawMessage(`{"hosts":[
			{"host":"api.anthropic.com","port":443,"kind":"tls","verdict":"allow","reason":"listed","count":2,"bytesUp":3,"bytesDown":4},
			{"host":"evil.example","port":0,"kind":"dns","verdict":"deny","reason":"not_listed","count":1}]}`)},
		Outcome: audit.Outcome{State: audit.StateFinished, Code: "command_failed", StopReason: "error_exit_3", ExitCode: &code, Accepted: accepted, Ended: &ended, DurationMS: 2000},
	}
}

// TestEvents validates events against what the schema demands, and takes from each in turn
// all that it has: without what is required none is valid.
func TestEvents(t *testing.T) {
	s := schema(t)
	at := audit.Place{Index: 41, SHA256: "ff"}
	lost := audit.Record{Execution: "run-2", Principal: "p", Network: audit.Network{Receipt: json.RawMessage("{}")}, Outcome: audit.Outcome{State: audit.StateLost, Accepted: record().Outcome.Accepted}}
	decision := ocsf.Decision(at, audit.Decision{Approval: "a-1", Tenant: "acme", Kind: "worker", Name: "resize", Digest: "sha256:ab", State: "approved", Principal: "ann", Time: record().Outcome.Accepted})
	var all []map[string]any
	for _, r := range []audit.Record{record(), lost} {
		events, err := ocsf.Events(at, r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Execution == lost.Execution {
			events = append(events, decision)
		}
		for _, e := range events {
			text, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
			if err == nil {
				err = s.Validate(v)
			}
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			all = append(all, v.(map[string]any))
		}
	}
	if len(all) != 5 {
		t.Fatalf("%d events, want a run with two hosts, a lost one and a decision", len(all))
	}
	for _, e := range all {
		required := []string{"activity_id", "category_uid", "class_uid", "metadata", "severity_id", "time", "type_uid"}
		if fmt.Sprint(e["class_uid"]) == "6003" {
			required = append(required, "actor", "api", "src_endpoint")
		}
		for _, name := range required {
			without := maps.Clone(e)
			delete(without, name)
			if err := s.Validate(without); err == nil {
				t.Errorf("control: an event without %s is valid", name)
			}
		}
		more := maps.Clone(e)
		more["sandbox"] = "mine"
		if err := s.Validate(more); err == nil {
			t.Error("control: an event with an attribute of our own is valid")
		}
	}
	for i, want := range []string{
		`"type_uid":600301`, `"type_uid":400106`, `"type_uid":400105`, `"type_uid":600301`, `"type_uid":600303`,
	} {
		if text, _ := json.Marshal(all[i]); !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	for i, want := range map[int][]string{
		0: {`"uid":"run-1"`, `"tenant_uid":"acme"`, `"ai_provider":"anthropic"`, `"total_tokens":12`, `"code":3`, `"definition":"release"`, `"duration":2000`, `"audit":{"index":41,"sha256":"ff"}`},
		1: {`"hostname":"api.anthropic.com"`, `"bytes_out":3`, `"bytes_in":4`, `"action_id":1`, `"correlation_uid":"run-1"`, `"status_detail":"listed"`},
		4: {`"operation":"decideApproval"`, `"message":"approved"`, `"name":"ann"`, `"type":"worker"`},
		2: {`"hostname":"evil.example"`, `"action_id":2`, `"disposition_id":2`, `"status_id":2`},
	} {
		text, _ := json.Marshal(all[i])
		for _, w := range want {
			if !strings.Contains(string(text), w) {
				t.Errorf("%s lacks %s", text, w)
			}
		}
	}
	if _, err := ocsf.Events(at, audit.Record{Network: audit.Network{Receipt: json.RawMessage("{")}}); err == nil {
		t.Error("a receipt that is none was taken")
	}
}
