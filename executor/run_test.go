package executor_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/plan"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

func TestRun(t *testing.T) {
	h := start(t)
	id := h.begin(command(`pwd; ls -a | wc -l; cat; echo " at $HOME" | cut -c1-4; echo made > made.txt; echo warned >&2`))
	res := h.finish(id)
	if !res.Success || res.StopReason != "success" || res.Error != nil {
		t.Fatalf("result = %+v, %v", res, res.Error)
	}
	if !strings.Contains(res.Output, "the prompt") || !strings.Contains(res.Output, "\n2\n") {
		t.Errorf("output = %q, want the prompt and an empty workspace", res.Output)
	}
	if res.ExecutionID != id || res.Isolation != (api.Isolation{Backend: "docker", Model: "container", Sandbox: res.Isolation.Sandbox, ImageDigest: "sha256:" + strings.Repeat("ab", 32)}) || res.Isolation.Sandbox == "" {
		t.Errorf("execution %q, isolation %+v", res.ExecutionID, res.Isolation)
	}
	if res.Receipt.Policy != "strict" || res.Receipt.Digest != "sha256:strict" {
		t.Errorf("receipt = %+v", res.Receipt)
	}
	tm := res.Timings
	if order := []int64{0, tm.Policy, tm.Queue, tm.Cell, tm.Start, tm.Ready, tm.FirstOutput, tm.Total}; !ascending(order) || tm.Token != -1 {
		t.Errorf("timings = %+v", tm)
	}
	x := get[api.Execution](h, "/v1/executions/"+id)
	if x.State != api.StateFinished || x.Result == nil || x.Result.Output != res.Output {
		t.Errorf("execution = %+v", x)
	}
	h.wantClean()
	if !strings.Contains(h.log.String(), `"msg":"run ended","run":"`+id+`"`) {
		t.Errorf("no line of the log is about the run: %s", h.log)
	}
}

func ascending(list []int64) bool {
	for i := 1; i < len(list); i++ {
		if list[i] < list[i-1] {
			return false
		}
	}
	return true
}

// TestWhatTheSandboxGets checks what goes to the backend and to PID 1.
func TestWhatTheSandboxGets(t *testing.T) {
	h := start(t)
	context := filepath.Join(h.root, "context")
	if err := os.Mkdir(context, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"b.md": "second", "a.md": "first\n", "c.txt": "not this"} {
		if err := os.WriteFile(filepath.Join(context, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(context, "d.md")); err != nil {
		t.Fatal(err)
	}
	skill := h.workspace("shaping")
	for name, mode := range map[string]os.FileMode{"SKILL.md": 0o640, "shape.sh": 0o750} {
		if err := os.WriteFile(filepath.Join(skill, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	res := h.post(command("true", `"agentContextDir":"`+context+`"`, `"agentContext":"third"`, `"skillPaths":["`+skill+`"]`, `"unrestrictedEgress":true`))
	if !res.Success || res.Receipt.Policy != "open" {
		t.Fatalf("result = %+v", res)
	}
	job := h.backend.jobs[0]
	var skills []string
	for _, f := range job.Files[1:] {
		_, at, _ := strings.Cut(f.Path, "/.") // its home is the harness's
		skills = append(skills, fmt.Sprintf("%s %o %s", at, f.Mode, f.Content))
	}
	if want := []string{
		"agents/skills/shaping/SKILL.md 444 SKILL.md", "agents/skills/shaping/shape.sh 555 shape.sh",
		"claude/skills/shaping/SKILL.md 444 SKILL.md", "claude/skills/shaping/shape.sh 555 shape.sh",
	}; !slices.Equal(skills, want) {
		t.Fatalf("files = %q, want %q", skills, want)
	}
	if text := string(job.Files[0].Content); !strings.HasPrefix(text, "first\n\nsecond\n\nthird\n\n") || !strings.Contains(text, firewall.PageHost) {
		t.Errorf("AGENTS.md is %q", text)
	}
	records, _ := audited(t, h.config.State, res)
	given, sum := records[0].Agent, sha256.Sum256([]byte("first\n\nsecond\n\nthird\n"))
	lines := fmt.Sprintf("%x  SKILL.md\n%x  shape.sh\n", sha256.Sum256([]byte("SKILL.md")), sha256.Sum256([]byte("shape.sh")))
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte(lines))); given.ContextSHA256 != hex.EncodeToString(sum[:]) || len(given.Skills) != 1 || given.Skills[0] != (audit.Skill{Name: "shaping", SHA256: want}) {
		t.Errorf("the audit record says of the agent %+v", given)
	}
	if job.ID != res.ExecutionID || job.Dir != "/workspace" {
		t.Errorf("job = %+v", job)
	}
	spec := h.backend.specs[0]
	if spec.Name != res.ExecutionID || spec.UID != h.config.Service.UID || spec.GID == 0 || spec.Image != "agent:test" || spec.Cell.ID == "" {
		t.Errorf("spec = %+v", spec)
	}
	lease := h.gate.granted[0]
	if lease.Run != res.ExecutionID || lease.Policy != "open" || lease.Address != spec.Cell.Gate || lease.Prefix != spec.Cell.Prefix {
		t.Errorf("lease = %+v", lease)
	}
}

func TestCommandFails(t *testing.T) {
	h := start(t)
	res := h.post(command("echo partial; echo reason >&2; exit 7"))
	wantCode(t, res, api.CodeCommandFailed)
	if res.Error.Details["exitCode"] != 7.0 || res.StopReason != "error_exit_7" || res.Error.Retryable {
		t.Errorf("error = %+v, stop reason %s", res.Error, res.StopReason)
	}
	if res.ExitCode == nil || *res.ExitCode != 7 {
		t.Errorf("exit code = %v", res.ExitCode)
	}
	if res.Error.Details["stderr"] != "reason" || res.Output != "partial\n" {
		t.Errorf("stderr = %q, output = %q", res.Error.Details["stderr"], res.Output)
	}
	res = h.post(`{"prompt":"p","config":{"agent":"command","argv":["/nowhere/program"]}}`)
	if res.Success || res.Error == nil || res.ExitCode != nil {
		t.Errorf("a program that does not exist: %+v", res)
	}
	h.wantClean()
}

func TestCancel(t *testing.T) {
	t.Parallel()
	h := start(t)
	for name, script := range map[string]string{
		"willing": "echo begun; sleep 60",
		"deaf":    "trap '' TERM; echo begun; sleep 60; sleep 60",
	} {
		id := h.begin(command(script))
		h.awaitText(id, "begun")
		began := time.Now()
		resp, data := h.do(http.MethodDelete, "/v1/executions/"+id, "")
		if x := decode[api.Execution](t, resp, data, http.StatusAccepted); x.State != api.StateRunning {
			t.Errorf("%s: state = %s", name, x.State)
		}
		res := h.finish(id)
		wantCode(t, res, api.CodeCancelled)
		if res.StopReason != "error_aborted" || res.Output != "begun\n" {
			t.Errorf("%s: stop reason %s, output %q", name, res.StopReason, res.Output)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
		resp, data = h.do(http.MethodDelete, "/v1/executions/"+id, "")
		decode[api.Execution](t, resp, data, http.StatusOK)
	}
	h.wantClean()
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	h := start(t)
	began := time.Now()
	res := h.post(command("echo begun; trap '' TERM; sleep 60; sleep 60", `"timeoutMs":1000`))
	wantCode(t, res, api.CodeTimeout)
	if res.StopReason != "error_timeout" || res.Output != "begun\n" || res.Error.Details["timeoutMs"] != 1000.0 {
		t.Errorf("result = %+v, %v", res, res.Error)
	}
	if took := time.Since(began); took > 11*time.Second {
		t.Errorf("it took %v", took)
	}
	h.wantClean()
}

func TestOutputTooLarge(t *testing.T) {
	h := start(t)
	for name, script := range map[string]string{"stdout": "yes", "stderr": "yes >&2", "one line": "cat /dev/zero"} {
		id := h.begin(command(script))
		res := h.finish(id)
		wantCode(t, res, api.CodeOutputTooLarge)
		if !res.OutputTruncated {
			t.Errorf("%s: the output is not marked as cut", name)
		}
		info, err := os.Stat(filepath.Join(h.config.State, "executions", id, "events.ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		// One event may cross the limit, and the result repeats the output.
		if limit := 4 * testLimits.OutputBytes; info.Size() > limit {
			t.Errorf("%s: the event log has %d bytes, more than %d", name, info.Size(), limit)
		}
	}
	h.wantClean()
}

func TestMemoryAndProcesses(t *testing.T) {
	t.Parallel()
	const (
		v1   = "/sys/fs/cgroup/memory/memory.oom_control:"
		v2   = "/sys/fs/cgroup/memory.events:"
		pids = "/sys/fs/cgroup/pids/pids.events:max "
	)
	h := start(t)
	for _, tt := range []struct {
		name   string
		cgroup string // what the kernel counts
		engine bool   // the engine says that memory ran out
		script string
		want   api.Code // empty for success
		detail string
	}{
		{"the kernel says so", v1 + "oom_kill_disable 0\n" + v1 + "oom_kill 2\n" + pids + "0", false, "kill -9 $$", api.CodeMemory, "memoryLimitBytes"},
		{"the kernel says so of a child", v2 + "max 9\n" + v2 + "oom 3\n" + v2 + "oom_kill 1", false, "exit 2", api.CodeMemory, "exitCode"},
		{"the kernel says no", v1 + "oom_kill 0\n" + pids + "0", true, "kill -9 $$", api.CodeCommandFailed, "signal"},
		{"no more processes", v1 + "oom_kill 0\n" + pids + "13", false, "exit 254", api.CodePIDs, "pidsLimit"},
		{"no more processes, version 2", v2 + "max 9\n" + v2 + "oom_kill 0\n/sys/fs/cgroup/pids.events:max 1", false, "exit 1", api.CodePIDs, "pidsLimit"},
		{"only the engine says so", "", true, "kill -9 $$", api.CodeMemory, "memoryLimitBytes"},
		{"nobody says so", "", false, "kill -9 $$", api.CodeCommandFailed, "signal"},
		{"the agent went on", v1 + "oom_kill 1\n" + pids + "13", true, "echo fine", "", ""},
	} {
		h.backend.set(func(b *processBackend) { b.cgroup, b.oom = tt.cgroup, tt.engine })
		res := h.post(command(tt.script))
		switch {
		case tt.want == "" && !res.Success:
			t.Errorf("%s: %v", tt.name, res.Error)
		case tt.want == "":
		case res.Error == nil || res.Error.Code != tt.want || res.Error.Details[tt.detail] == nil:
			t.Errorf("%s: error = %+v, want %s", tt.name, res.Error, tt.want)
		}
	}
	h.wantClean()
}

func TestSandboxLost(t *testing.T) {
	t.Parallel()
	h := start(t)
	id := h.begin(command("echo begun; sleep 60"))
	h.awaitText(id, "begun")
	h.backend.set(func(b *processBackend) { b.last.kill() })
	res := h.finish(id)
	wantCode(t, res, api.CodeLost)
	if !res.Error.Retryable || res.Output != "begun\n" {
		t.Errorf("result = %+v, %v", res, res.Error)
	}
	h.wantClean()
}

// TestHostileSandbox has other programs in the place of PID 1.
//
// probe: F1, F2, F10
// oracle: the store, which keeps nothing of the archive; the result's code
func TestHostileSandbox(t *testing.T) {
	t.Parallel()
	h := start(t)
	for role, want := range map[string]api.Code{
		"dead":    api.CodeStartFailed,
		"babbler": api.CodeLost,
		"forger":  api.CodeEscape,
	} {
		h.backend.set(func(b *processBackend) { b.role = role })
		id := h.begin(command("true", `"artifacts":["**"]`))
		res := h.finish(id)
		wantCode(t, res, want)
		if want == api.CodeEscape && res.Error.Details["escapeKind"] != "artifact_link" {
			t.Errorf("details = %v", res.Error.Details)
		}
		if want == api.CodeStartFailed && (res.Error.Details["sandboxExitCode"] != 0.0 || res.Error.Details["stderr"] != "last words") {
			t.Errorf("details = %v", res.Error.Details)
		}
		if len(res.Artifacts) != 0 {
			t.Errorf("%s: artifacts = %v", role, res.Artifacts)
		}
		if _, err := os.Stat(filepath.Join(h.config.State, "executions", id, "artifacts")); err == nil {
			t.Errorf("%s: something of the archive was kept", role)
		}
	}
	h.wantClean()
}

func TestStartFails(t *testing.T) {
	h := start(t)
	h.backend.set(func(b *processBackend) { b.fail = errTest })
	res := h.post(command("true"))
	wantCode(t, res, api.CodeStartFailed)
	if !strings.Contains(res.Error.Message, errTest.Error()) || res.Timings.Start != -1 || res.Timings.Cell < 0 {
		t.Errorf("error = %v, timings %+v", res.Error, res.Timings)
	}
	h.wantClean()
}

// TestLeaseRefused has a gate that refuses.
//
// probe: N13, L4
// oracle: the sandboxes that were started, which are none, and the cells, which are
// thrown away
func TestLeaseRefused(t *testing.T) {
	listen := control.Problem{Status: 409, Code: control.CodeListen}
	for _, tt := range []struct {
		name      string
		refusals  []control.Problem
		want      api.Code // empty for success
		discarded int64
	}{
		{"two bad cells", []control.Problem{listen, {Status: 409, Code: control.CodeLeased}}, "", 2},
		{"three bad cells", []control.Problem{listen, listen, listen}, api.CodeStartFailed, 3},
		{"no such policy", []control.Problem{{Status: 422, Code: control.CodeNoPolicy}}, api.CodePolicyDenied, 1},
		{"gate stopping", []control.Problem{{Status: 503, Code: control.CodeStopping}}, api.CodeGateUnavailable, 1},
	} {
		h := start(t)
		h.gate.refuseNext(tt.refusals...)
		res := h.post(command("true"))
		if tt.want != "" {
			wantCode(t, res, tt.want)
			if len(h.backend.specs) != 0 {
				t.Errorf("%s: a sandbox was started", tt.name)
			}
		} else if !res.Success {
			t.Errorf("%s: %v", tt.name, res.Error)
		}
		if got := h.cells.discarded.Load(); got != tt.discarded {
			t.Errorf("%s: %d cells were discarded, want %d", tt.name, got, tt.discarded)
		}
		h.wantClean()
	}
}

// TestGateDies takes the gate away in mid-run.
//
// probe: N13
// oracle: the result and its receipt, the cell, and a run once the gate is back
func TestGateDies(t *testing.T) {
	t.Parallel()
	h := start(t)
	id := h.begin(command("echo begun; sleep 60"))
	h.awaitText(id, "begun")
	h.gate.decide(account.Record{Kind: account.KindDNS, Host: "example.org", Verdict: firewall.Deny, Reason: firewall.ReasonNotListed})
	h.await(id, func(ev api.Event) bool { return ev.Type == api.EventEgress })
	h.gate.stop()
	res := h.finish(id)
	wantCode(t, res, api.CodeGateUnavailable)
	if !res.Error.Retryable || len(res.Receipt.Hosts) != 1 || res.Receipt.Hosts[0].Host != "example.org" {
		t.Errorf("error %+v, receipt %+v", res.Error, res.Receipt)
	}
	if h.cells.discarded.Load() != 1 {
		t.Error("the cell was not discarded")
	}
	resp, data := h.do(http.MethodPost, "/v1/executions", command("true"))
	if p := decode[api.Problem](t, resp, data, http.StatusServiceUnavailable); p.Code != api.CodeGateUnavailable || !p.Retryable {
		t.Errorf("problem = %+v", p)
	}
	h.gate.start()
	if res := h.post(command("true")); !res.Success {
		t.Errorf("after the gate is back: %v", res.Error)
	}
	h.wantClean()
}

func TestEgressEvents(t *testing.T) {
	t.Parallel()
	h := start(t)
	id := h.begin(command("echo begun; sleep 1"))
	h.awaitText(id, "begun")
	for range 50 {
		h.gate.decide(account.Record{Kind: account.KindTLS, Host: "github.com", Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 10})
	}
	h.gate.decide(account.Record{Kind: account.KindTLS, Host: "github.com", Port: 443, Verdict: firewall.Deny, Reason: firewall.ReasonAddress})
	res := h.finish(id)
	if len(res.Receipt.Hosts) != 2 || res.Receipt.Hosts[0].Count+res.Receipt.Hosts[1].Count != 51 {
		t.Errorf("receipt = %+v", res.Receipt)
	}
	n := 0
	for _, ev := range h.events(id, "") {
		if ev.Type == api.EventEgress {
			n++
		}
	}
	if n != 2 {
		t.Errorf("%d egress events, want one for each kind of decision", n)
	}
}

// Names that an agent makes up do not take the room for what it reaches: of the
// events as of the rows, refusals have a half at most.
//
// probe: X16
// oracle: the events and the receipt as a client of the API gets them
func TestEgressEventsFlood(t *testing.T) {
	t.Parallel()
	h := start(t)
	id := h.begin(command("echo begun; sleep 2"))
	h.awaitText(id, "begun")
	const flood, reached = 2500, 300
	for i := range flood {
		h.gate.decide(account.Record{Kind: account.KindDNS, Host: fmt.Sprintf("x%d.example", i), Verdict: firewall.Deny, Reason: firewall.ReasonNotListed})
	}
	for i := range reached {
		h.gate.decide(account.Record{Kind: account.KindTLS, Host: fmt.Sprintf("y%d.github.com", i), Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed, BytesUp: 10})
	}
	res := h.finish(id)
	events, rows := map[firewall.Verdict]int{}, map[firewall.Verdict]int{}
	for _, ev := range h.events(id, "") {
		if ev.Type == api.EventEgress {
			events[ev.Decision.Verdict]++
		}
	}
	for _, row := range res.Receipt.Hosts {
		rows[row.Verdict]++
	}
	if events[firewall.Allow] != reached || events[firewall.Deny] != 500 {
		t.Errorf("events %v, want %d of what was reached and 500 refusals", events, reached)
	}
	if rows[firewall.Allow] != reached || rows[firewall.Deny] != 2048 {
		t.Errorf("rows %v, want %d of what was reached and 2048 refusals", rows, reached)
	}
	want := []account.VerdictSum{{Verdict: firewall.Deny, Count: flood - 2048}}
	if !slices.Equal(res.Receipt.OverflowSums, want) || res.Receipt.Overflow != flood-2048 {
		t.Errorf("beyond the rows: %+v, %d; want %+v", res.Receipt.OverflowSums, res.Receipt.Overflow, want)
	}
}

func TestBoundary(t *testing.T) {
	h := start(t, func(c *executor.Config) { c.Backends[0].Boundary.(*testBoundary).set("host-listener", nil) })
	res := h.post(command("true"))
	wantCode(t, res, api.CodeStartFailed)
	if !strings.Contains(res.Error.Message, "host-listener") || res.Error.Retryable {
		t.Errorf("error = %+v", res.Error)
	}
	if len(h.backend.specs) != 0 || len(h.gate.granted) != 0 {
		t.Error("something was started")
	}
	resp, data := h.do(http.MethodGet, "/readyz", "", "Authorization", "")
	if ready := decode[api.Readiness](t, resp, data, http.StatusServiceUnavailable); ready.Ready || !strings.Contains(string(data), "host-listener") {
		t.Errorf("readiness = %+v", ready)
	}
	h.boundary.set("", nil)
	resp, data = h.do(http.MethodPost, "/v1/boundary/check", "")
	if r := decode[api.BoundaryReport](t, resp, data, http.StatusOK); !r.Passed {
		t.Errorf("report = %+v", r)
	}
	if ready := get[api.Readiness](h, "/readyz"); !ready.Ready {
		t.Errorf("readiness = %+v", ready)
	}
	if res := h.post(command("true")); !res.Success {
		t.Errorf("once the boundary holds: %v", res.Error)
	}
	h.boundary.set("", errTest)
	h.later()
	resp, data = h.do(http.MethodPost, "/v1/boundary/check", "")
	if p := decode[api.Problem](t, resp, data, http.StatusServiceUnavailable); !strings.Contains(p.Detail, errTest.Error()) {
		t.Errorf("problem = %+v", p)
	}
}

// TestBoundaryCheckRests asks for checks without a pause: those at the same time are
// one, and the next one has to wait.
func TestBoundaryCheckRests(t *testing.T) {
	t.Parallel()
	h := start(t)
	h.post(command("true")) // the executor's own first check is over
	before := h.boundary.checks.Load()
	check := func() (*http.Response, []byte) { return h.do(http.MethodPost, "/v1/boundary/check", "") }
	h.boundary.mu.Lock() // a check takes as long as this is held
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if resp, data := check(); resp.StatusCode != http.StatusOK {
				t.Errorf("beside others: %s %s", resp.Status, data)
			}
		})
	}
	for h.executor.Proof().Asking() < 8 {
		time.Sleep(time.Millisecond)
	}
	h.boundary.mu.Unlock()
	calls.Wait()
	if n := h.boundary.checks.Load() - before; n != 1 {
		t.Errorf("%d checks for 8 calls at the same time, want 1", n)
	}
	resp, data := check()
	p := decode[api.Problem](t, resp, data, http.StatusTooManyRequests)
	if wait, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || wait < 1 || wait > 10 || p.Code != api.CodeBusy || !p.Retryable {
		t.Errorf("Retry-After %q, %+v", resp.Header.Get("Retry-After"), p)
	}
	if n := h.boundary.checks.Load() - before; n != 1 {
		t.Errorf("%d checks after a refusal", n)
	}
	h.later()
	if resp, data := check(); resp.StatusCode != http.StatusOK {
		t.Errorf("after a while: %s %s", resp.Status, data)
	}
}

// TestRunWaitsForTheBoundary has the first checks fail for want of an engine.
func TestRunWaitsForTheBoundary(t *testing.T) {
	t.Parallel()
	h := start(t, func(c *executor.Config) { c.Backends[0].Boundary.(*testBoundary).set("", errTest) })
	id := h.begin(command("true"))
	h.await(id, func(ev api.Event) bool { return ev.Stage == "queue" })
	if len(h.gate.granted) != 0 {
		t.Error("a cell was leased before the boundary was proven")
	}
	h.boundary.set("", nil)
	if res := h.finish(id); !res.Success {
		t.Errorf("error = %v", res.Error)
	}
}

func TestDisk(t *testing.T) {
	t.Parallel()
	h := start(t, limit(func(l *plan.Limits) { l.WorkspaceBytes, l.WorkspaceFiles = 1<<20, 50 }))
	res := h.post(command("head -c 3000000 /dev/urandom > big; sleep 60"))
	wantCode(t, res, api.CodeDisk)
	res = h.post(command("for i in $(seq 100); do : > f$i; done; sleep 60"))
	wantCode(t, res, api.CodeDisk)
	// What the caller brought does not count.
	dir := h.workspace("full")
	if err := os.WriteFile(filepath.Join(dir, "big"), make([]byte, 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if res = h.post(command("sleep 3", `"cwd":"`+dir+`"`)); !res.Success {
		t.Errorf("error = %v", res.Error)
	}
	h.wantClean()
}

// workspace makes a directory that a request may name as cwd.
func (h *harness) workspace(name string) string {
	h.t.Helper()
	dir := filepath.Join(h.root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Chown(dir, h.config.Service.UID, h.config.Service.UID); err != nil {
		h.t.Fatal(err)
	}
	return dir
}

func TestCallersWorkspace(t *testing.T) {
	h := start(t)
	dir := h.workspace("project")
	res := h.post(command("echo kept > file.txt", `"cwd":"`+dir+`"`))
	if !res.Success {
		t.Fatal(res.Error)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "file.txt")); err != nil || string(data) != "kept\n" {
		t.Errorf("file.txt: %q, %v", data, err)
	}
	logs, err := filepath.Glob(filepath.Join(h.config.State, "sessions", "projects", strings.ReplaceAll(dir, "/", "-"), "*.jsonl"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("session logs: %v, %v", logs, err)
	}
	data, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		if !json.Valid([]byte(line)) {
			t.Errorf("line %q of the session log", line)
		}
	}
}
