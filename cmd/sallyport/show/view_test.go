package show

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

var update = flag.Bool("update", false, "write what the tests got to testdata")

// agentRun are the events of a run of an agent, some of them hostile.
func agentRun() []api.Event {
	result := &api.Result{
		Success: true, Output: "All done.\n", Turns: 2, DurationMS: 12_345, CostUSD: 0.0213, StopReason: "success",
		InputTokens: 2000, CacheReadInputTokens: 10_100, OutputTokens: 834, ExecutionID: "01test",
		Github:    &api.GithubReceipt{Profile: "read", Owner: "acme", Repositories: []string{"app", "lib"}, Downscoped: true, Refreshed: 2, Revoked: true, Checkout: "done"},
		Artifacts: []api.Artifact{{Name: "a\tb\x1b.md", Size: 2048, SHA256: "abcd"}, {Name: "big", Skipped: "larger than the bound"}},
		Receipt: account.Receipt{Policy: "strict", Digest: "sha256:0123", Overflow: 7, OverflowSums: []account.VerdictSum{
			{Verdict: firewall.Allow, Count: 2, BytesUp: 3 << 20, BytesDown: 4096}, {Verdict: firewall.Deny, Count: 5},
		}, Hosts: []account.ReceiptHost{
			{Host: "api.anthropic.com", Kind: account.KindDNS, Verdict: firewall.Allow, Reason: firewall.ReasonListed, Count: 2},
			{Host: "api.anthropic.com", Port: 443, Kind: account.KindTLS, Verdict: firewall.Allow, Reason: firewall.ReasonListed, Count: 3, BytesUp: 24_100, BytesDown: 18_700},
			{Host: "looked-up.github.com", Kind: account.KindDNS, Verdict: firewall.Allow, Reason: firewall.ReasonListed, Count: 1},
			{Host: "example.org", Kind: account.KindDNS, Verdict: firewall.Deny, Reason: firewall.ReasonNotListed, Count: 1},
		}},
	}
	events := []api.Event{
		{Type: api.EventAccepted, Execution: "01test"},
		{Type: api.EventStage, Stage: "running"},
		{Type: api.EventSession, SessionID: "s1", Model: "anthropic/claude"},
		{Type: api.EventThinking, Text: "First I look around.\nThen I \x1b[1mact\x1b[0m."},
		{Type: api.EventText, Text: "I run the tests."},
		{Type: api.EventUsage, Usage: &api.Usage{InputTokens: 1}},
		{Type: api.EventToolStart, Tool: &api.Tool{ID: "1", Name: "bash", Args: json.RawMessage(`{"command": "go test ./...\n"}`)}},
		{Type: api.EventEgress, Decision: &account.Record{Kind: account.KindTLS, Host: "github.com", Verdict: firewall.Allow}},
		{Type: api.EventEgress, Decision: &account.Record{Kind: account.KindTLS, Host: "proxy.golang.org", Verdict: firewall.Deny, Reason: firewall.ReasonAddress, Detail: "10.0.0.1 is private\nuse"}},
		{Type: api.EventToolEnd, Tool: &api.Tool{ID: "1", Name: "bash", Result: "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"}},
		{Type: api.EventToolStart, Tool: &api.Tool{ID: "2", Name: "write", Args: json.RawMessage(`{"path": "a", "content": "b"}`)}},
		{Type: api.EventToolEnd, Tool: &api.Tool{ID: "2", Name: "write", Result: "no such\x07 directory", IsError: true}},
		{Type: api.EventRetry, Text: "overloaded"},
		{Type: api.EventStderr, Text: "a warning of node\n"},
		{Type: api.EventOutput, Text: "no newline"},
		{Type: api.EventWarning, Text: "the workspace is large"},
		{Type: api.EventText, Text: "All done."},
		{Type: api.EventResult, Result: result},
	}
	for i := range events {
		events[i].Seq, events[i].Time = int64(i+1), time.Unix(0, int64(i)*int64(250*time.Millisecond))
	}
	return events
}

// TestView compares what is shown of a run with testdata/view.golden.
func TestView(t *testing.T) {
	var out bytes.Buffer
	for _, whole := range []bool{false, true} {
		v := &View{Out: &out, Whole: whole}
		for _, ev := range agentRun() {
			v.Event(ev)
			if ev.Result != nil {
				if err := Result(&out, ev.Result); err != nil {
					t.Fatal(err)
				}
			}
		}
		out.WriteString("=====\n")
	}
	const path = "testdata/view.golden"
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("got\n%s\nwant\n%s", out.Bytes(), want)
	}
}
