package executor_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/statedir"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// recorded has the sandboxes run, instead of pi, what prints a recording and then the
// script. It returns what the recording comes to.
func (h *harness) recorded(name, script string) agent.Outcome {
	h.t.Helper()
	path, err := filepath.Abs("agent/testdata/pi/" + name + ".jsonl")
	if err != nil {
		h.t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		h.t.Fatal(err)
	}
	h.backend.set(func(b *processBackend) { b.pi = "cat " + path + "; " + script })
	p := agent.Pi{}.NewParser(agent.Input{})
	p.Stdout(data)
	return p.Finish(wire.Exit{})
}

// copyState copies a state directory as it is in this moment. The copy of the audit key has
// the mode of the key, without which it would not be taken.
func copyState(t *testing.T, to, from string) {
	t.Helper()
	key := filepath.Join(statedir.Audit(to), "key.pem")
	if err := errors.Join(os.CopyFS(to, os.DirFS(from)), os.Chmod(key, 0o600)); err != nil {
		t.Fatal(err)
	}
}

const piRequest = `{"prompt":"Look around.","config":{"agent":"pi","model":"anthropic/claude-sonnet-4-6"}}`

// TestLost kills an executor in the middle of a run: another one starts on a copy of
// what it had written until then.
//
// probe: L1
// oracle: the result, which says what a run to its end would have said, as far as it
// is known; the state of the token at GitHub
func TestLost(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	want := h.recorded("demo", "echo nonsense; sleep 60")
	id := h.begin(with(piRequest, readAccess))
	h.await(id, func(ev api.Event) bool { return strings.Contains(ev.Text, "nonsense") })
	seen := account.Record{Kind: account.KindTLS, Host: "api.anthropic.com", Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 7}
	h.gate.decide(seen)
	h.gate.decide(seen)
	h.gate.decide(account.Record{Kind: account.KindDNS, Host: "evil.example", Verdict: firewall.Deny, Reason: firewall.ReasonNotListed})
	h.await(id, func(ev api.Event) bool { return ev.Decision != nil && ev.Decision.Verdict == firewall.Deny })
	killed := filepath.Join(t.TempDir(), "state")
	copyState(t, killed, h.config.State)
	g.fault(`{"only":"revoke","status":403,"body":"{}"}`)
	h.end()

	// What came of the run where its executor lived on.
	h.boot()
	ended := *get[api.Execution](h, "/v1/executions/"+id).Result
	h.end()

	boot := func(receipts map[string]account.Receipt) api.Result {
		h.config.State = filepath.Join(t.TempDir(), "state")
		copyState(t, h.config.State, killed)
		var told []audit.Record
		h.config.Ended = func(r audit.Record, events iter.Seq[api.Event]) {
			if len(slices.Collect(events)) > 3 {
				told = append(told, r)
			}
		}
		defer func() {
			if len(told) != 1 || told[0].Execution != id || told[0].Outcome.State != audit.StateLost {
				t.Errorf("of its end was told %+v", told)
			}
		}()
		h.config.Boot = func(context.Context) (map[string]account.Receipt, error) { return receipts, nil }
		h.boot()
		defer h.end()
		res := *get[api.Execution](h, "/v1/executions/"+id).Result
		wantCode(t, res, api.CodeLost)
		if events := h.events(id, ""); !reflect.DeepEqual(events[len(events)-1].Result, &res) {
			t.Errorf("the last event is %+v, the result %+v", events[len(events)-1], res)
		}
		records, _ := audited(t, h.config.State, res)
		if len(records) != 1 || records[0].Outcome.State != audit.StateLost || records[0].Outcome.Ended != nil || records[0].Command.Argv[0] != "pi" ||
			records[0].Agent.Model != "claude-sonnet-4-6" || !records[0].Network.Boundary.Passed || records[0].Tokens[0].Owner != "acme" {
			t.Errorf("the audit records are %+v", records)
		}
		return res
	}
	res := boot(nil)
	if res.SessionID != want.SessionID || res.Output != want.Output || res.Turns != want.Turns || res.CostUSD != want.Usage.CostUSD ||
		res.InputTokens != want.Usage.InputTokens || res.OutputTokens != want.Usage.OutputTokens ||
		res.CacheReadInputTokens != want.Usage.CacheReadTokens || res.CacheCreationInputTokens != want.Usage.CacheCreationTokens ||
		want.SessionID == "" || want.Output == "" || want.Turns == 0 || want.Usage.CostUSD == 0 {
		t.Errorf("result %+v, want %+v", res, want)
	}
	receipt := slices.Clone(ended.Receipt.Hosts)
	if len(receipt) != 2 || receipt[0].Count != 2 {
		t.Fatalf("control: the receipt is %+v", receipt)
	}
	receipt[0].Count, receipt[0].BytesUp = 1, 7 // only the first of those alike is an event
	if got := res.Receipt; !slices.Equal(got.Hosts, receipt) || got.Policy != "strict" || got.Digest != "sha256:strict" || res.Error.Details["receipt"] != "events" {
		t.Errorf("receipt %+v, want %+v; details %v", got, receipt, res.Error.Details)
	}
	if r := res.Github; r == nil || r.Revoked || !strings.HasPrefix(r.RevokeError, "not yet: ") || r.Profile != "read" || r.Owner != "acme" ||
		!slices.Equal(r.Repositories, []string{"app"}) || r.Source != api.SourceApp || !r.Downscoped || r.ExpiresAt == nil {
		t.Errorf("github %+v", r)
	}

	g.fault("")
	if states := g.states(); !slices.Equal(states, []string{"live"}) {
		t.Fatalf("control: tokens are %v", states)
	}
	final := ended.Receipt
	final.Hosts = append(slices.Clone(final.Hosts), account.ReceiptHost{Host: secretKey + ".example", Kind: account.KindDNS, Verdict: firewall.Deny, Count: 1})
	res = boot(map[string]account.Receipt{id: final, "another": {}})
	final.Hosts[2].Host = "[ANTHROPIC_API_KEY redacted].example"
	if !reflect.DeepEqual(res.Receipt, final) || res.Error.Details["receipt"] != "gate" {
		t.Errorf("receipt %+v, want %+v; details %v", res.Receipt, final, res.Error.Details)
	}
	if r := res.Github; r == nil || !r.Revoked || r.RevokeError != "" {
		t.Errorf("github %+v", r)
	}
	if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
		t.Errorf("tokens are %v", states)
	}

	// An executor with no access to GitHub has no way to revoke anything.
	h.config.GitHub, h.config.Service.GitHub = nil, nil
	if r := boot(nil).Github; r == nil || r.Revoked || !strings.Contains(r.RevokeError, "settings have changed") {
		t.Errorf("github %+v", r)
	}
}

// TestLostCommand is TestLost for a program of the caller's, which has printed more than
// a result holds, and for a run that was still in the queue.
func TestLostCommand(t *testing.T) {
	h := start(t)
	h.config.Service.Tiers[0].Limits.OutputBytes = 8 << 20
	h.config.MaxRuns = 1
	h.end()
	h.boot()
	first := h.begin(command("echo begun; head -c 1500000 /dev/zero | tr '\\0' x; echo; echo done; sleep 60"))
	h.awaitText(first, "done")
	queued := h.begin(command("true"))
	killed := filepath.Join(t.TempDir(), "state")
	copyState(t, killed, h.config.State)
	h.do(http.MethodDelete, "/v1/executions/"+first, "")
	want := h.finish(first)
	h.end()
	h.config.State = killed
	h.boot()
	defer h.end()
	res := h.finish(first)
	wantCode(t, res, api.CodeLost)
	if res.Output != want.Output || !res.OutputTruncated || !want.OutputTruncated || res.Github != nil {
		t.Errorf("output of %d bytes, truncated %v; want %d, %v", len(res.Output), res.OutputTruncated, len(want.Output), want.OutputTruncated)
	}
	res = h.finish(queued)
	wantCode(t, res, api.CodeLost)
	if res.Output != "" || len(res.Receipt.Hosts) != 0 || res.Receipt.Policy != "strict" {
		t.Errorf("result %+v", res)
	}
}
