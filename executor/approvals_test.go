package executor_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
	"sallyport/executor/statedir"
)

// risky is a profile that needs an approval by what it allows.
const risky = "version: 1\npolicyVersion: 1\ndefault: p\ntenants: {acme: {profiles: all}, other: {profiles: all}}\nprofiles:\n  p: {egress: [strict], tasks: [run.shell]}\n"

// people are callers by their tokens, beside the operator.
func (h *harness) people() map[string]string {
	h.t.Helper()
	tokens := map[string]string{}
	for name, c := range map[string]caller.Caller{
		"alice": {Tenant: "acme"}, "bob": {Tenant: "acme"}, "eve": {Tenant: "other"},
	} {
		c.Principal, c.Rights = name, caller.Run|caller.Read|caller.Approve
		tokens[name] = "the-token-of-" + name
		if err := h.executor.Know(tokens[name], c); err != nil {
			h.t.Fatal(err)
		}
		tokens[name] = "Bearer " + tokens[name]
	}
	tokens["operator"] = "Bearer " + testToken
	return tokens
}

// refused makes a request that nobody has approved, and returns the approval that it waits for.
func (h *harness) refused(body, as string) api.Approval {
	h.t.Helper()
	resp, data := h.do("POST", "/v1/executions", body, "Authorization", as)
	var p struct {
		Code    api.Code
		Details struct{ Approval *api.Approval }
	}
	if err := json.Unmarshal(data, &p); err != nil || resp.StatusCode != 403 || p.Code != api.CodePolicyDenied || p.Details.Approval == nil {
		h.t.Fatalf("%s %s, %v; want a refusal for want of an approval", resp.Status, data, err)
	}
	return *p.Details.Approval
}

// decide decides about an approval as it was seen.
func (h *harness) decide(a api.Approval, what, as string, extra ...string) (int, api.Approval) {
	h.t.Helper()
	body := fmt.Sprintf(`{"seq":%d%s}`, a.Seq, strings.Join(extra, ""))
	resp, data := h.do("POST", "/v1/approvals/"+a.ID+"/"+what, body, "Authorization", as)
	var decided api.Approval
	if resp.StatusCode == 200 {
		decided = decode[api.Approval](h.t, resp, data, 200)
	}
	return resp.StatusCode, decided
}

func (h *harness) approve(a api.Approval, as string, extra ...string) api.Approval {
	h.t.Helper()
	status, decided := h.decide(a, "approve", as, extra...)
	if status != 200 || decided.State != api.ApprovalApproved || decided.Digest != a.Digest {
		h.t.Fatalf("approving %+v: %d, %+v", a, status, decided)
	}
	return decided
}

// begun is how many executions there are on disk.
func (h *harness) begun() int {
	h.t.Helper()
	entries, err := os.ReadDir(filepath.Join(h.config.State, "executions"))
	if err != nil {
		h.t.Fatal(err)
	}
	return len(entries)
}

// TestNothingUnapprovedRuns: a profile that executes commands runs nothing until somebody
// else of the tenant, or the operator, has approved this very version; a changed one does not
// take effect, and the approved one comes back with its file.
//
// probe: T6
// oracle: the executions on disk, and the same request once it is approved
func TestNothingUnapprovedRuns(t *testing.T) {
	path, profiles := withProfiles(t, risky)
	h := start(t, profiles)
	as := h.people()
	body := command("echo ran")
	a := h.refused(body, as["alice"])
	if a.State != api.ApprovalPending || a.Kind != api.KindProfile || a.Name != "p" || !strings.HasPrefix(a.Digest, "sha256:") {
		t.Errorf("%+v", a)
	}
	if again := h.refused(body, as["alice"]); again.ID != a.ID {
		t.Errorf("asking again makes another approval: %+v", again)
	}
	for who, want := range map[string]int{"alice": 403, "eve": 404, "operator": 404} {
		if status, _ := h.decide(a, "approve", as[who]); status != want {
			t.Errorf("%s approves: %d, want %d", who, status, want)
		}
	}
	for _, route := range []string{"", "/" + a.ID} { // nobody else sees it
		if resp, data := h.do("GET", "/v1/approvals"+route, "", "Authorization", as["eve"]); strings.Contains(string(data), a.Digest) {
			t.Errorf("another tenant: %s %s", resp.Status, data)
		}
	}
	if h.begun() != 0 {
		t.Fatal("something was begun")
	}
	approved := h.approve(a, as["bob"], `,"comment":"it is ours"`)
	if len(approved.History) != 2 || approved.History[1].Principal != "bob" || approved.History[1].Comment != "it is ours" || approved.History[0].Principal != "alice" {
		t.Errorf("history %+v", approved.History)
	}
	resp, data := h.do("POST", "/v1/executions", body, "Authorization", as["alice"])
	res := decode[api.Result](t, resp, data, 200)
	if !res.Success || res.Output != "ran\n" || len(res.EffectivePolicy.Approvals) != 1 || res.EffectivePolicy.Approvals[0].Digest != a.Digest {
		t.Errorf("control: %s", data)
	}
	other := h.refused(body, as["eve"]) // that of one tenant is none of another's
	if other.ID == a.ID || other.Digest != a.Digest {
		t.Errorf("of another tenant: %+v", other)
	}
	// The operator looks at tenants by their names, and decides for them.
	for query, want := range map[string]int{"": 0, "?tenant=acme": 1, "?tenant=other": 1, "?tenant=all": 2} {
		if list := get[api.ApprovalList](h, "/v1/approvals"+query); len(list.Approvals) != want {
			t.Errorf("the operator lists%s: %+v", query, list)
		}
	}
	resp, data = h.do("POST", "/v1/approvals/"+other.ID+"/approve?tenant=other", fmt.Sprintf(`{"seq":%d}`, other.Seq))
	if theirs := decode[api.Approval](t, resp, data, 200); theirs.History[1].Principal != "operator" || theirs.History[1].PrincipalTenant != "" || theirs.Tenant != "other" {
		t.Errorf("the operator decides: %s", data)
	}
	// The operator's token approves what it asked for: it has nobody beside it.
	h.approve(h.refused(body, as["operator"]), as["operator"])
	if res := h.post(body); !res.Success {
		t.Errorf("the operator: %+v", res)
	}

	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Replace(risky, "[run.shell]", "[run.shell, run.script]", 1))
	changed := h.refused(body, as["alice"])
	if changed.ID == a.ID || changed.State != api.ApprovalPending {
		t.Errorf("a changed profile: %+v", changed)
	}
	write(strings.Replace(risky, "policyVersion: 1", "policyVersion: 2", 1))
	resp, data = h.do("POST", "/v1/executions", body, "Authorization", as["alice"])
	if res := decode[api.Result](t, resp, data, 200); !res.Success {
		t.Errorf("the approved version: %s", data)
	}
	h.gate.mu.Lock()
	h.gate.changes++
	h.gate.mu.Unlock()
	if moved := h.refused(body, as["alice"]); moved.ID == a.ID {
		t.Errorf("with another egress policy of that name: %+v", moved)
	}
}

const workerCode = "tr a-z A-Z\n"

// worker is a request that brings code along.
func worker(code string) string {
	w, _ := json.Marshal(api.Worker{Name: "upper", Code: map[string]string{"lib/upper.sh": code}, Dependencies: map[string]string{"requirements.txt": "tr\n"}})
	return fmt.Sprintf(`{"prompt":"the prompt","config":{"agent":"command","argv":["sh","/run/sallyport/worker/lib/upper.sh"]},"opts":{"worker":%s}}`, w)
}

// TestWorkerChangedByOneByte: code that was approved runs, and code that differs by one byte
// is refused until another principal has approved it; run and decisions verify offline, and
// no changed byte does.
//
// probe: T7
// oracle: what the worker prints; the exported log under its public key
func TestWorkerChangedByOneByte(t *testing.T) {
	h := start(t)
	as := h.people()
	_, profiles := withProfiles(t, strings.Replace(risky, "tasks: [run.shell]", "tasks: [run.shell], approval: none", 1))
	profiles(&h.config)
	h.end()
	h.boot()
	as = h.people()
	run := func(code string) api.Result {
		t.Helper()
		resp, data := h.do("POST", "/v1/executions", worker(code), "Authorization", as["alice"])
		return decode[api.Result](t, resp, data, 200)
	}
	first := h.refused(worker(workerCode), as["alice"])
	h.approve(first, as["bob"])
	if res := run(workerCode); !res.Success || res.Output != "THE PROMPT" {
		t.Fatalf("the approved worker: %+v", res)
	}
	const oneByte = "tr a-y A-Z\n"
	for _, code := range []string{oneByte, workerCode + "\n", "tr a-z A-Z"} {
		if a := h.refused(worker(code), as["alice"]); a.ID == first.ID || a.State != api.ApprovalPending || a.Kind != api.KindWorker {
			t.Errorf("changed code: %+v", a)
		}
	}
	shorter := strings.Replace(worker(workerCode), `"agent":"command"`, `"agent":"command","timeoutMs":5000`, 1)
	if resp, data := h.do("POST", "/v1/executions", shorter, "Authorization", as["alice"]); resp.StatusCode != 200 {
		t.Errorf("the same code in less time: %s %s", resp.Status, data)
	}
	second := h.refused(worker(oneByte), as["alice"])
	if status, _ := h.decide(second, "approve", as["alice"]); status != 403 {
		t.Errorf("who asked approves: %d", status)
	}
	h.approve(second, as["bob"], `,"comment":"one byte"`)
	res := run(oneByte)
	if !res.Success || res.Output != "THE PROMPT" {
		t.Errorf("the changed worker, approved: %+v", res)
	}

	records, text := audited(t, h.config.State, res)
	resp, data := h.do("GET", "/v1/approvals/"+second.ID, "", "Authorization", as["bob"])
	shown := decode[api.Approval](t, resp, data, 200)
	var definition struct {
		CodeSHA256, DependenciesSHA256 string
		Code                           map[string]string
	}
	if err := json.Unmarshal(shown.Definition, &definition); err != nil || definition.Code["lib/upper.sh"] != oneByte {
		t.Errorf("definition %s, %v", shown.Definition, err)
	}
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	if want := sum(sum(oneByte) + "  lib/upper.sh\n"); definition.CodeSHA256 != want { // as sha256sum has it
		t.Errorf("the code's digest is %s, want %s", definition.CodeSHA256, want)
	}
	if r := records[0]; r.Task.CodeSHA256 != definition.CodeSHA256 || r.Task.DependenciesSHA256 != definition.DependenciesSHA256 ||
		len(r.Approvals) != 1 || r.Approvals[0].Digest != second.Digest {
		t.Errorf("record %+v %+v", r.Task, r.Approvals)
	}
	if strings.Count(text, audit.TypeApproval) != 2 || !strings.Contains(text, strings.TrimPrefix(second.Digest, "sha256:")) || !strings.Contains(text, `"principal":"bob"`) {
		t.Errorf("the decisions are not in the log: %s", text)
	}
	flipped(t, statedir.Audit(h.config.State))
}

// flipped changes bytes of an exported log, one at a time: it must not verify then.
func flipped(t *testing.T, dir string) {
	t.Helper()
	var export bytes.Buffer
	key, err := audit.CurrentKey(dir)
	if err == nil {
		err = audit.Export(&export, dir, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	trust := audit.Trust{Keys: []audit.PublicKey{key}}
	if _, err := audit.Verify(bytes.NewReader(export.Bytes()), trust, nil); err != nil {
		t.Fatalf("control: %v", err)
	}
	for i := 0; i < export.Len(); i += 101 {
		bad := bytes.Clone(export.Bytes())
		bad[i] ^= 1
		if _, err := audit.Verify(bytes.NewReader(bad), trust, nil); err == nil {
			t.Fatalf("it verifies with byte %d changed: %q", i, bad[max(0, i-20):min(len(bad), i+20)])
		}
	}
}

// TestApprovalRaces: an approval that is withdrawn, replayed or overtaken lets nothing run.
//
// probe: T8
// oracle: the sandboxes that were started; the same run with its approval left alone
func TestApprovalRaces(t *testing.T) {
	_, profiles := withProfiles(t, risky)
	h := start(t, profiles, func(c *executor.Config) { c.MaxRuns, c.Users = 1, 1 })
	as := h.people()
	begin := func(script string) string {
		t.Helper()
		resp, data := h.do("POST", "/v1/executions", command(script), "Authorization", as["alice"], "Prefer", "respond-async")
		return decode[api.Execution](t, resp, data, 202).ID
	}
	result := func(id string) api.Result {
		t.Helper()
		_, data := h.do("GET", "/v1/executions/"+id+"/events?follow=true", "", "Authorization", as["alice"])
		events := parseEvents(t, data)
		return *events[len(events)-1].Result
	}
	running := func(id string) {
		t.Helper()
		for range 2000 {
			_, data := h.do("GET", "/v1/executions/"+id+"/events", "", "Authorization", as["alice"])
			if strings.Contains(string(data), `"go\n"`) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Fatal("it does not run")
	}

	// Many ask at the same time: nothing starts, and one approval is pending.
	ids := sync.Map{}
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() { ids.Store(h.refused(command("true"), as["alice"]).ID, true) })
	}
	asking.Wait()
	count := 0
	ids.Range(func(any, any) bool { count++; return true })
	if count != 1 || h.begun() != 0 {
		t.Fatalf("%d approvals, %d executions", count, h.begun())
	}

	a := h.approve(h.refused(command("true"), as["alice"]), as["bob"])
	pending := a.History[0]
	// One runs and one waits when the approval is withdrawn.
	first := begin("echo go; sleep 60")
	running(first)
	second := begin("echo never")
	started := h.backend.started()
	status, withdrawn := h.decide(a, "withdraw", as["bob"])
	if status != 200 || withdrawn.State != api.ApprovalWithdrawn {
		t.Fatalf("withdrawing: %d %+v", status, withdrawn)
	}
	for _, id := range []string{first, second} {
		res := result(id)
		wantCode(t, res, api.CodePolicyDenied)
		if !strings.Contains(res.Error.Message, a.ID) {
			t.Errorf("message %q", res.Error.Message)
		}
	}
	if now := h.backend.started(); now != started {
		t.Errorf("%d sandboxes were started after the approval was withdrawn", now-started)
	}
	h.refused(command("true"), as["alice"])

	// The decisions of before, sent once more, are about a state that is gone.
	for _, seq := range []int64{pending.Seq, a.Seq} {
		for what, want := range map[string]int{"approve": 409, "withdraw": 409} {
			if status, _ := h.decide(api.Approval{ID: a.ID, Seq: seq}, what, as["bob"]); status != want {
				t.Errorf("%s with seq %d once more: %d", what, seq, status)
			}
		}
	}
	a = h.approve(withdrawn, as["bob"])

	// Withdrawn where no run is told of it: what waits looks for itself before it starts.
	first = begin("echo go; sleep 60")
	running(first)
	second = begin("echo never")
	by := caller.Caller{Tenant: "acme", Principal: "bob"}
	withdrawn, err := h.executor.Approvals().Decide(t.Context(), by, a.ID, api.ApprovalWithdrawn, api.ApprovalDecision{Seq: a.Seq})
	if err != nil {
		t.Fatal(err)
	}
	h.do("DELETE", "/v1/executions/"+first, "", "Authorization", as["alice"])
	started = h.backend.started()
	wantCode(t, result(second), api.CodePolicyDenied)
	if now := h.backend.started(); now != started {
		t.Error("a sandbox was started for a run whose approval was gone")
	}
	a = h.approve(withdrawn, as["bob"])

	// The egress policy changes when the run has been judged and has no cell yet.
	first = begin("echo go; sleep 60")
	running(first)
	second = begin("echo overtaken")
	h.gate.mu.Lock()
	h.gate.changes++
	h.gate.mu.Unlock()
	h.do("DELETE", "/v1/executions/"+first, "", "Authorization", as["alice"])
	wantCode(t, result(second), api.CodePolicyDenied)
	h.gate.mu.Lock()
	h.gate.changes--
	h.gate.mu.Unlock()
	if res := result(begin("echo whole")); !res.Success || res.Output != "whole\n" {
		t.Errorf("control: %+v", res)
	}
	h.wantClean()
}

// started is how many sandboxes there were.
func (b *processBackend) started() (n int) {
	b.set(func(b *processBackend) { n = len(b.specs) })
	return n
}

// TestTasksAreApproved: where the profile says so, each task has to be approved in one very
// version, whatever run of it this is.
//
// probe: T6
// oracle: the same task in another run
func TestTasksAreApproved(t *testing.T) {
	_, profiles := withProfiles(t, strings.Replace(risky, "[run.shell]}", "[run.shell], approval: per-task}", 1))
	h := start(t, profiles)
	as := h.people()
	request := func(script, instance string) string {
		return strings.TrimSuffix(command(script), "}") + `,"opts":{"workflow":{"definition":"d","instance":"` + instance + `","task":"t"}}}`
	}
	a := h.refused(request("true", "1"), as["alice"])
	if a.Kind != api.KindProfile {
		t.Errorf("%+v", a)
	}
	h.approve(a, as["bob"])
	if a = h.refused(request("true", "1"), as["alice"]); a.Kind != api.KindTask || a.Name != "d/t" {
		t.Errorf("%+v", a)
	}
	h.approve(a, as["bob"])
	for _, instance := range []string{"1", "1", "2"} {
		resp, data := h.do("POST", "/v1/executions", request("true", instance), "Authorization", as["alice"])
		if res := decode[api.Result](t, resp, data, 200); !res.Success || len(res.EffectivePolicy.Approvals) != 2 {
			t.Errorf("instance %s: %s", instance, data)
		}
	}
	for _, change := range []string{request("true ", "1"), strings.Replace(request("true", "1"), `"the prompt"`, `"another"`, 1)} {
		if changed := h.refused(change, as["alice"]); changed.ID == a.ID {
			t.Errorf("changed: %+v", changed)
		}
	}
	secret := h.refused(request("echo "+secretKey, "1"), as["alice"])
	resp, data := h.do("GET", "/v1/approvals/"+secret.ID, "", "Authorization", as["bob"])
	if decode[api.Approval](t, resp, data, 200); strings.Contains(string(data), secretKey) {
		t.Error("a key is in the definition")
	}
}

// TestApprovalTier: the tier that was assigned at the approval is the most that a run gets.
//
// probe: T6
// oracle: the limits of the sandbox; a tier within the assigned one
func TestApprovalTier(t *testing.T) {
	_, profiles := withProfiles(t, risky)
	small := testLimits
	small.MemoryBytes /= 2
	h := start(t, profiles, func(c *executor.Config) {
		c.Service.Tiers = append(c.Service.Tiers, plan.Tier{Name: "small", Limits: small})
	})
	as := h.people()
	a := h.refused(command("true"), as["alice"])
	for _, extra := range []string{`,"tier":"huge"`, `,"comment":"\u0007"`} {
		if status, _ := h.decide(a, "approve", as["bob"], extra); status != 422 {
			t.Errorf("%s: %d", extra, status)
		}
	}
	if status, _ := h.decide(a, "refuse", as["bob"], `,"tier":"small"`); status != 422 {
		t.Errorf("refuse with a tier: %d", status)
	}
	h.approve(a, as["bob"], `,"tier":"small"`)
	for extra, want := range map[string]int{``: 200, `"tier":"small"`: 200, `"tier":"standard"`: 403} {
		body := command("true")
		if extra != "" {
			body = command("true", extra)
		}
		resp, data := h.do("POST", "/v1/executions", body, "Authorization", as["alice"])
		if resp.StatusCode != want {
			t.Errorf("%s: %s %s", extra, resp.Status, data)
			continue
		}
		if want == 200 {
			res := decode[api.Result](t, resp, data, 200)
			h.backend.set(func(b *processBackend) {
				if got := b.specs[len(b.specs)-1].Limits.MemoryBytes; got != small.MemoryBytes || res.EffectivePolicy.Tier != "small" || res.EffectivePolicy.Approvals[0].Tier != "small" {
					t.Errorf("%s: %d bytes, %+v", extra, got, res.EffectivePolicy)
				}
			})
		}
	}
}

// TestApprovalEvents: pending and decided ones come as they happen, to their tenant alone,
// and go on where a broken stream ended.
//
// probe: T6
// oracle: the events of the tenant that they are of
func TestApprovalEvents(t *testing.T) {
	_, profiles := withProfiles(t, risky)
	h := start(t, profiles)
	as := h.people()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	follow := func(who, after string) *json.Decoder {
		t.Helper()
		req := h.request("GET", "/v1/approvals/events?follow=true", "", "Authorization", as[who], "Last-Event-ID", after).WithContext(ctx)
		resp, err := h.client.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v, %v", resp, err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return json.NewDecoder(resp.Body)
	}
	next := func(d *json.Decoder) (ev api.ApprovalEvent) {
		t.Helper()
		if err := d.Decode(&ev); err != nil {
			t.Fatal(err)
		}
		return ev
	}
	ours, theirs := follow("bob", ""), follow("eve", "")
	a := h.refused(command("true"), as["alice"])
	pending := next(ours)
	if pending.Type != api.ApprovalPending || pending.ApprovalID != a.ID || pending.Principal != "alice" || pending.Seq != a.Seq {
		t.Errorf("%+v", pending)
	}
	h.decide(a, "refuse", as["bob"], `,"comment":"no"`)
	refused := next(ours)
	if refused.Type != api.ApprovalRefused || refused.Comment != "no" || refused.Seq <= pending.Seq {
		t.Errorf("%+v", refused)
	}
	if again := next(follow("bob", fmt.Sprint(pending.Seq))); again != refused {
		t.Errorf("after %d: %+v", pending.Seq, again)
	}
	own := h.refused(command("true"), as["eve"])
	if ev := next(theirs); ev.ApprovalID != own.ID {
		t.Errorf("the other tenant's first event is %+v", ev)
	}
	resp, data := h.do("GET", "/v1/approvals/events?follow=false", "", "Authorization", as["bob"], "Accept", "text/event-stream")
	if text := string(data); resp.StatusCode != 200 || !strings.HasPrefix(text, fmt.Sprintf("id: %d\nevent: pending\ndata: {", pending.Seq)) || strings.Count(text, "id: ") != 2 {
		t.Errorf("%s %s", resp.Status, data)
	}
	list := get[api.ApprovalList](h, "/v1/approvals")
	if len(list.Approvals) != 0 {
		t.Errorf("the operator's own: %+v", list)
	}
	for query, want := range map[string]int{"?state=refused": 1, "?state=pending": 0, "": 1, "?before=" + a.ID: 0} {
		resp, data := h.do("GET", "/v1/approvals"+query, "", "Authorization", as["bob"])
		if list := decode[api.ApprovalList](t, resp, data, 200); len(list.Approvals) != want {
			t.Errorf("%s: %s", query, data)
		}
	}
	for path, want := range map[string]int{"?state=odd": 400, "?x=1": 400, "/nosuch": 404, "/events?after=x": 400} {
		if resp, _ := h.do("GET", "/v1/approvals"+path, ""); resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	for _, body := range []string{`{}`, `{"seq":1,"x":1}`, `[]`, `{"seq":1}{}`} {
		if resp, _ := h.do("POST", "/v1/approvals/"+a.ID+"/approve", body, "Authorization", as["bob"]); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", body, resp.Status)
		}
	}
}

// An announced is what a webhook was told.
type announced struct {
	mu     sync.Mutex
	ids    []string
	bodies []string
	refuse bool
	came   chan struct{}
}

func (r *announced) Post(_ context.Context, id string, _ time.Time, body []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids, r.bodies = append(r.ids, id), append(r.bodies, string(body))
	select {
	case r.came <- struct{}{}:
	default:
	}
	if r.refuse {
		return errTest
	}
	return nil
}

// TestApprovalsAreAnnounced: each pending approval is announced; what could not be is tried
// again, also by the executor of after a restart, and what is decided by then is not.
func TestApprovalsAreAnnounced(t *testing.T) {
	_, profiles := withProfiles(t, risky)
	r := &announced{refuse: true, came: make(chan struct{}, 1)}
	h := start(t, profiles, func(c *executor.Config) { c.Announce = r })
	as := h.people()
	await := func() {
		t.Helper()
		select {
		case <-r.came:
		case <-time.After(30 * time.Second):
			t.Fatal("nothing was announced")
		}
	}
	a := h.refused(command("true"), as["alice"])
	await()
	decided := h.refused(command("true"), as["eve"])
	await()
	h.decide(decided, "refuse", as["operator"]) // of another tenant: nothing is decided
	resp, data := h.do("POST", "/v1/approvals/"+decided.ID+"/refuse?tenant=other", fmt.Sprintf(`{"seq":%d}`, decided.Seq))
	decode[api.Approval](t, resp, data, 200)
	h.end()
	r.mu.Lock()
	first, n := r.ids[0], len(r.ids)
	if n != 2 || !strings.Contains(r.bodies[0], `"type":"approval.pending"`) || !strings.Contains(r.bodies[0], a.ID) {
		t.Errorf("%v %v", r.ids, r.bodies)
	}
	r.refuse = false
	r.mu.Unlock()
	h.later()
	h.boot()
	await()
	h.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) != n+1 || r.ids[n] != first || r.bodies[n] != r.bodies[0] {
		t.Errorf("after the restart %v %v", r.ids[n:], r.bodies[n:])
	}
	if !strings.Contains(h.log.String(), "a pending approval could not be announced yet") {
		t.Error("the log says nothing of it")
	}
}
