package compose_test

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// task is a prompt for which the demo's model uses bash and write.
func task() api.Request {
	return api.Request{Prompt: "Look at this machine and write REPORT.md.", Config: api.Config{Model: model, Artifacts: []string{"REPORT.md"}}}
}

// TestAgentDoesItsJob is the demo as a test: pi, with its own SDK, talks to the
// model provider through the gate, uses its tools and leaves a file.
func TestAgentDoesItsJob(t *testing.T) {
	before := lastHit(t)
	res, events := run(t, task())
	if !res.Success || res.StopReason != "success" {
		t.Fatalf("the run failed: %+v\nstandard error: %s", res.Error, text(events, api.EventStderr))
	}
	var order []string
	for _, e := range events {
		switch e.Type {
		case api.EventToolStart:
			order = append(order, e.Tool.Name)
		case api.EventSession, api.EventResult:
			order = append(order, string(e.Type))
		}
	}
	if want := []string{"session", "bash", "write", "result"}; !slices.Equal(order, want) {
		t.Errorf("the events came as %v, want %v", order, want)
	}
	if res.Turns < 3 || res.InputTokens == 0 || res.OutputTokens == 0 || res.CostUSD == 0 || res.SessionID == "" || res.Output == "" {
		t.Errorf("the result lacks what the agent reported: %+v", res)
	}
	if len(res.Artifacts) != 1 || res.Artifacts[0].Name != "REPORT.md" || res.Artifacts[0].Size == 0 {
		t.Fatalf("artifacts: %+v", res.Artifacts)
	}
	body, err := st.Artifact(t.Context(), res.ExecutionID, "REPORT.md")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if b, _ := io.ReadAll(body); int64(len(b)) != res.Artifacts[0].Size {
		t.Errorf("REPORT.md has %d bytes, want %d", len(b), res.Artifacts[0].Size)
	}
	if len(rows(res.Receipt, "api.anthropic.com", firewall.Allow)) == 0 {
		t.Errorf("the receipt does not name the model provider: %+v", res.Receipt.Hosts)
	}
	wantRow(t, res.Receipt, "refused.example", account.KindDNS, firewall.ReasonNotListed)

	asked := false
	for _, h := range hits(t, before) {
		asked = asked || h.Name == "api.anthropic.com" && strings.HasPrefix(h.Detail, "POST /v1/messages")
		if strings.Contains(h.Name, "refused") {
			t.Errorf("the far side saw %+v", h)
		}
	}
	if !asked {
		t.Error("the model provider saw no request")
	}
}

// TestSkills gives a caller's skill to pi, which tells its model of it, and to a program,
// which runs it and can change its own copy alone.
func TestSkills(t *testing.T) {
	dir := filepath.Join(st.root, "shaping")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"SKILL.md": "---\nname: shaping\ndescription: Shapes clay into bowls.\n---\nRun shape.sh.\n",
		"shape.sh": "#!/bin/sh\necho shaped\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	req := api.Request{Prompt: "script:system=clay", Config: api.Config{Model: model}}
	res, _ := run(t, req)
	if !res.Success || strings.Contains(res.Output, "clay") {
		t.Errorf("control: without skills the model is told %q, %+v", res.Output, res.Error)
	}
	req.Config.SkillPaths = []string{dir}
	if res, _ = run(t, req); !res.Success || !strings.Contains(res.Output, "Shapes clay into bowls.") {
		t.Errorf("the model is told %q, %+v", res.Output, res.Error)
	}
	req = bash("strict", "set -e; for at in .agents .claude; do cd ~/$at/skills/shaping; ./shape.sh; ! echo more >>SKILL.md; chmod u+w SKILL.md; echo more >>SKILL.md; done 2>/dev/null")
	req.Config.SkillPaths = []string{dir}
	if res, _ = run(t, req); !res.Success || res.Output != "shaped\nshaped\n" {
		t.Errorf("output %q, %+v", res.Output, res.Error)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "SKILL.md")); err != nil || !strings.HasSuffix(string(text), "shape.sh.\n") {
		t.Errorf("the caller's skill reads %q, %v", text, err)
	}
}

// TestSessionLog wants the original's envelopes under the session's name.
func TestSessionLog(t *testing.T) {
	res, _ := run(t, task())
	var log []byte
	err := filepath.WalkDir(filepath.Join(st.state, "sessions"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == res.SessionID+".jsonl" {
			log, err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"type":"user"`, `"type":"assistant"`, `"type":"tool_use"`, `"type":"tool_result"`, `"type":"result"`} {
		if !strings.Contains(string(log), want) {
			t.Errorf("the session log has no %s:\n%.2000s", want, log)
		}
	}
}

func TestProviderErrorIsAFailure(t *testing.T) {
	req := task()
	req.Prompt = "script:quota"
	res, _ := run(t, req)
	wantError(t, res, api.CodeAgentFailed)
	if res.StopReason != "error_quota" {
		t.Errorf("stopReason is %q, want error_quota", res.StopReason)
	}
}
