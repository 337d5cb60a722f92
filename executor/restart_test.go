package executor_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/store"
)

// TestCrash boots an executor on what one that was killed has left.
//
// probe: L1
// oracle: the result on record, the workspace, and a file outside of it that a link
// leads to
func TestCrash(t *testing.T) {
	h := start(t)
	h.end()
	const id = "01arz3ndektsv4rrffq69g5fav"
	st, closeStore := h.store()
	e, err := st.Create(store.Meta{ID: id, Accepted: time.Now().Add(-time.Minute)}, []byte("{}"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Append(api.Event{Type: api.EventAccepted, Execution: id}); err != nil {
		t.Fatal(err)
	}
	closeStore()
	left := filepath.Join(h.config.State, "workspaces", id)
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(h.root, "precious")
	if err := os.WriteFile(outside, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(h.root, filepath.Join(left, "link")); err != nil {
		t.Fatal(err)
	}

	h.boot()
	defer h.end()
	x := get[api.Execution](h, "/v1/executions/"+id)
	if x.State != api.StateFinished {
		t.Fatalf("state = %s", x.State)
	}
	wantCode(t, *x.Result, api.CodeLost)
	if !x.Result.Error.Retryable || x.Result.StopReason != "error_sandbox" {
		t.Errorf("result = %+v", x.Result)
	}
	events := h.events(id, "?follow=true")
	if len(events) != 2 || events[1].Type != api.EventResult {
		t.Errorf("events = %+v", events)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("the workspace is still there")
	}
	if _, err := os.Stat(outside); err != nil {
		t.Error("removing the workspace followed a link")
	}
}

func TestStateIsLocked(t *testing.T) {
	h := start(t)
	_, err := executor.New(h.config)
	if err == nil || !strings.Contains(err.Error(), "another executor") {
		t.Errorf("a second executor on the same state: %v", err)
	}
}

func TestQueue(t *testing.T) {
	h := start(t, func(c *executor.Config) { c.MaxRuns, c.Queue = 1, 2 })
	first := h.begin(command("echo begun; sleep 60"))
	h.awaitText(first, "begun")
	second, third := h.begin(command("echo second")), h.begin(command("echo third"))
	if x := get[api.Execution](h, "/v1/executions/"+second); x.State != api.StateQueued {
		t.Errorf("state = %s", x.State)
	}
	resp, data := h.do(http.MethodPost, "/v1/executions", command("true"))
	if p := decode[api.Problem](t, resp, data, 503); p.Code != api.CodeBusy || !p.Retryable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("problem %+v, header %v", p, resp.Header)
	}
	h.do(http.MethodDelete, "/v1/executions/"+third, "")
	res := h.finish(third)
	wantCode(t, res, api.CodeCancelled)
	if res.Timings.Queue != -1 || len(h.backend.specs) != 1 {
		t.Errorf("timings %+v, %d sandboxes", res.Timings, len(h.backend.specs))
	}
	h.do(http.MethodDelete, "/v1/executions/"+first, "")
	if res := h.finish(second); !res.Success || res.Output != "second\n" {
		t.Errorf("result = %+v", res)
	}
	h.wantClean()
}

func TestWorkspacesDoNotOverlap(t *testing.T) {
	h := start(t, func(c *executor.Config) { c.MaxRuns = 4 })
	outer, inner, other := h.workspace("outer"), h.workspace("outer/inner"), h.workspace("outerlike")
	id := h.begin(command("mkdir context; touch context/SKILL.md; echo begun; sleep 60", `"cwd":"`+inner+`"`))
	h.awaitText(id, "begun")
	link := filepath.Join(h.root, "link")
	if err := os.Symlink(inner, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{inner, outer, link} {
		resp, data := h.do(http.MethodPost, "/v1/executions", command("true", `"cwd":"`+dir+`"`))
		p := decode[api.Problem](t, resp, data, http.StatusConflict)
		if p.Code != api.CodeBusy || !p.Retryable || p.Details["executionId"] != id {
			t.Errorf("%s: %+v", dir, p)
		}
	}
	for body, field := range map[string]string{
		command("true", `"sessionsDir":"`+inner+`"`): "config.sessionsDir",
		command("true", `"sessionsDir":"`+outer+`"`): "config.sessionsDir",

		command("true", `"agentContextDir":"`+inner+`"`):         "config.agentContextDir",
		command("true", `"agentContextDir":"`+outer+`"`):         "config.agentContextDir",
		command("true", `"agentContextDir":"`+inner+`/context"`): "config.agentContextDir",

		command("true", `"skillPaths":["`+inner+`/context"]`): "config.skillPaths",
		command("true", `"skillPaths":["`+inner+`"]`):         "config.skillPaths",
	} {
		resp, data := h.do(http.MethodPost, "/v1/executions", body)
		if p := decode[api.Problem](t, resp, data, http.StatusConflict); p.Details["field"] != field {
			t.Errorf("%s: %+v", body, p)
		}
	}
	for _, dirs := range []string{`"cwd":"` + other + `"`, `"agentContextDir":"` + other + `"`, `"cwd":"` + other + `","agentContextDir":"` + other + `"`} {
		if res := h.post(command("true", dirs)); !res.Success {
			t.Errorf("the control %s: %v", dirs, res.Error)
		}
	}
	h.do(http.MethodDelete, "/v1/executions/"+id, "")
	h.finish(id)
	if res := h.post(command("true", `"cwd":"`+inner+`"`)); !res.Success {
		t.Errorf("once it is free: %v", res.Error)
	}
}

func TestRetention(t *testing.T) {
	h := start(t, func(c *executor.Config) { c.Keep = 2 })
	var ids []string
	for range 4 {
		id := h.begin(command("true"), "Idempotency-Key", "key"+string(rune('a'+len(ids))))
		h.finish(id)
		ids = append(ids, id)
	}
	h.end() // sweeping comes after the result
	h.boot()
	defer h.end()
	for i, id := range ids {
		want := http.StatusNotFound
		if i >= 2 {
			want = http.StatusOK
		}
		if resp, _ := h.do(http.MethodGet, "/v1/executions/"+id, ""); resp.StatusCode != want {
			t.Errorf("execution %d: %s, want %d", i, resp.Status, want)
		}
	}
	for i, id := range ids {
		resp, data := h.do(http.MethodPost, "/v1/executions", command("true"), "Idempotency-Key", "key"+string(rune('a'+i)))
		if i >= 2 {
			if res := decode[api.Result](t, resp, data, http.StatusOK); res.ExecutionID != id {
				t.Errorf("the key of execution %d gives %s", i, res.ExecutionID)
			}
		} else if p := decode[api.Problem](t, resp, data, http.StatusGone); p.Code != api.CodeGone || p.Details["executionId"] != id || p.Retryable {
			t.Errorf("the key of execution %d: %+v", i, p)
		}
	}
	if len(h.backend.specs) != len(ids) {
		t.Errorf("%d runs for %d keys", len(h.backend.specs), len(ids))
	}
}

// recordsVariable makes TestRecordsTakeNoMemory the executor that starts on the records
// in the state directory that it names.
const recordsVariable = "SALLYPORT_TEST_RECORDS"

// TestRecordsTakeNoMemory starts an executor, in a process of its own, on the records of
// 1,000 runs whose prompts have 8 MiB, and asks it for all of them.
//
// oracle: the kernel's account of the most memory that the process had
func TestRecordsTakeNoMemory(t *testing.T) {
	const runs, limit = 1000, 256 << 20
	body := strings.Replace(command("true", `"model":"acme/large"`), "the prompt", strings.Repeat("prompt & ", (8<<20-1024)/9), 1)
	if state := os.Getenv(recordsVariable); state != "" {
		recall(t, state, body, runs, limit)
		return
	}
	h := start(t)
	first := h.post(of("large", body), "Idempotency-Key", "the key").ExecutionID
	h.end()
	records := filepath.Join(h.config.State, "executions")
	asked := filepath.Join(records, first, "request.json")
	if info, err := os.Stat(asked); err != nil || info.Size() < 8<<20 {
		t.Fatalf("the request on record: %+v, %v", info, err)
	}
	st, closeStore := h.store()
	began := time.Now().Add(-2 * time.Hour)
	for i := range runs - 1 { // with the same request, on disk once
		at := began.Add(time.Duration(i) * time.Second)
		e, err := st.Create(store.Meta{ID: strings.ToLower(ulid.MustNew(ulid.Timestamp(at), rand.Reader).String()), Accepted: at, TaskID: "large", Agent: "command"}, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		request := filepath.Join(records, e.Meta.ID, "request.json")
		if err := errors.Join(os.Remove(request), os.Link(asked, request), e.Finish(api.Result{Output: strings.Repeat("o", 1000)})); err != nil {
			t.Fatal(err)
		}
	}
	closeStore()
	// Without the race detector, which takes several times the memory of what it watches.
	program := filepath.Join(t.TempDir(), "executor.test")
	if out, err := exec.Command("go", "test", "-c", "-race=false", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the executor of the test: %v\n%s", err, out)
	}
	child := exec.Command(program, "-test.run=^TestRecordsTakeNoMemory$", "-test.v")
	child.Env = append(os.Environ(), recordsVariable+"="+h.config.State, "GOMEMLIMIT=192MiB")
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestRecordsTakeNoMemory") {
		t.Errorf("%v: %.4096s", err, out)
	}
	t.Log(strings.TrimSpace(string(out)))
}

// recall is the executor of TestRecordsTakeNoMemory.
func recall(t *testing.T, state, body string, runs int, limit int64) {
	most := unix.Rlimit{Cur: 1 << 30, Max: 1 << 30} // a machine has more to do than to show that it fails
	if err := unix.Setrlimit(unix.RLIMIT_DATA, &most); err != nil {
		t.Fatal(err)
	}
	h := start(t, func(c *executor.Config) { c.State, c.Keep, c.KeepFor = state, 2*runs, 24*time.Hour })
	found, before := 0, ""
	for more := true; more; more = before != "" {
		list := get[api.ExecutionList](h, "/v1/executions?limit=100&state=finished&taskId=large"+before)
		found += len(list.Executions)
		if before = ""; list.Next != "" {
			before = "&before=" + list.Next
		}
	}
	if found != runs {
		t.Errorf("%d runs are listed, want %d", found, runs)
	}
	newest := get[api.ExecutionList](h, "/v1/executions?limit=1").Executions[0]
	if newest.Model != "acme/large" || newest.TaskID != "large" || newest.Agent != "command" || newest.Policy != "strict" {
		t.Errorf("the newest run: %+v", newest)
	}
	if res := h.post(of("large", body), "Idempotency-Key", "the key"); res.ExecutionID != newest.ID {
		t.Errorf("the same call again is execution %s, want %s", res.ExecutionID, newest.ID)
	}
	if events := h.events(newest.ID, ""); events[len(events)-1].Result == nil {
		t.Errorf("%d events without a result", len(events))
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var peak int64
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &peak); err != nil {
		t.Fatal(err)
	}
	if peak <<= 10; peak > limit {
		t.Errorf("the executor had %d MiB in memory, which may be %d", peak>>20, limit>>20)
	}
	t.Logf("%d MiB at most", peak>>20)
}
