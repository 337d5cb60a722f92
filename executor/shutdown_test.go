package executor_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
)

// TestShutdown ends an executor with runs under way and in the queue, whose callers
// all wait: each gets its result.
func TestShutdown(t *testing.T) {
	const waiting = 16
	h := start(t, func(c *executor.Config) { c.MaxRuns, c.Queue = waiting/2, waiting })
	running := h.begin(command("echo begun; sleep 60"))
	h.awaitText(running, "begun")
	type answer struct {
		resp *http.Response
		data []byte
		err  error
	}
	answers := make(chan answer, waiting)
	forms := []string{"application/json", "application/json", "application/x-ndjson", "text/event-stream"}
	for i := range waiting {
		req := h.request(http.MethodPost, "/v1/executions", command("sleep 60"), "Accept", forms[i%len(forms)])
		go func() {
			resp, err := h.client.Do(req)
			if err != nil {
				answers <- answer{err: err}
				return
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			answers <- answer{resp, data, err}
		}()
	}
	h.awaitCount(waiting + 1)
	queued := h.begin(command("true"))
	h.end()
	for range waiting {
		a := <-answers
		if a.err != nil || a.resp.StatusCode != http.StatusOK || !bytes.Contains(a.data, []byte(`"code":"sandbox_cancelled"`)) {
			t.Errorf("a caller got %+v %s", a, a.data)
		}
	}
	if n := h.backend.live.Load(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
	h.boot()
	defer h.end()
	for _, id := range []string{running, queued} {
		x := get[api.Execution](h, "/v1/executions/"+id)
		wantCode(t, *x.Result, api.CodeCancelled)
		if !x.Result.Error.Retryable {
			t.Errorf("error = %+v", x.Result.Error)
		}
	}
	h.wantClean()
}

// awaitCount waits until as many executions are on record.
func (h *harness) awaitCount(n int) {
	h.t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if list := get[api.ExecutionList](h, "/v1/executions?limit=100"); len(list.Executions) == n {
			return
		}
	}
	h.t.Fatalf("there are not %d executions", n)
}

// TestLateQuestion has a caller finish a request, for an execution that is on record,
// when the server takes no other any more: the record is closed after the last answer.
func TestLateQuestion(t *testing.T) {
	h := start(t)
	body := command("echo begun; sleep 60")
	h.awaitText(h.begin(body, "Idempotency-Key", "k"), "begun")
	addr := strings.TrimPrefix(h.url, "http://")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/executions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Idempotency-Key: k\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", testToken, len(body))
	answers := bufio.NewReader(c)
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100") { // it reads the body now
		t.Fatalf("%q, %v", line, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.end()
	}()
	for {
		another, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		another.Close()
		time.Sleep(time.Millisecond)
	}
	fmt.Fprint(c, body)
	answers.ReadString('\n') // the end of the first answer
	resp, err := http.ReadResponse(answers, h.request(http.MethodPost, "/v1/executions", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, decode[api.Result](t, resp, data, http.StatusOK), api.CodeCancelled)
	<-ended
}

// TestAnswersDuringShutdown asks an executor that is about to end.
func TestAnswersDuringShutdown(t *testing.T) {
	h := start(t)
	id := h.begin(command("echo begun; sleep 60"))
	h.awaitText(id, "begun")
	if ready := get[api.Readiness](h, "/readyz"); !ready.Ready {
		t.Fatalf("before: %+v", ready)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := h.executor.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	resp, data := h.do(http.MethodGet, "/readyz", "")
	for _, c := range decode[api.Readiness](t, resp, data, http.StatusServiceUnavailable).Checks {
		if c.Ready == (c.Name == "executor") || c.Name == "executor" && !strings.Contains(c.Detail, "being shut down") {
			t.Errorf("check %+v", c)
		}
	}
	if health := get[api.Health](h, "/healthz"); health.Status != "ok" {
		t.Errorf("health = %+v", health)
	}
	resp, data = h.do(http.MethodPost, "/v1/executions", command("true"))
	p := decode[api.Problem](t, resp, data, http.StatusServiceUnavailable)
	if p.Code != api.CodeBusy || !p.Retryable || resp.Header.Get("Retry-After") == "" || !strings.Contains(p.Detail, "being shut down") {
		t.Errorf("a new run: %+v", p)
	}
	x := get[api.Execution](h, "/v1/executions/"+id)
	wantCode(t, *x.Result, api.CodeCancelled)
	if last := h.events(id, ""); last[len(last)-1].Type != api.EventResult {
		t.Errorf("the last event is %+v", last[len(last)-1])
	}
}
