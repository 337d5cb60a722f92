package executor_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/statedir"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// of makes a request part of a task.
func of(task, body string) string {
	return strings.TrimSuffix(body, "}") + `,"opts":{"taskId":"` + task + `"}}`
}

func ids(list api.ExecutionList) []string {
	found := []string{}
	for _, x := range list.Executions {
		found = append(found, x.ID)
	}
	return found
}

// TestList lists runs of two tasks and policies, one of which still goes on and
// one of which waits.
func TestList(t *testing.T) {
	h := start(t, func(c *executor.Config) { c.MaxRuns = 1 })
	good := h.post(of("plan", command("true"))).ExecutionID
	bad := h.post(of("build", command("exit 3", `"unrestrictedEgress":true`))).ExecutionID
	running := h.begin(of("build", command("echo begun; sleep 60")))
	h.awaitText(running, "begun")
	queued := h.begin(command("true"))
	all := []string{good, bad, running, queued}
	slices.Sort(all) // their identifiers are those of their time
	slices.Reverse(all)

	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"", all},
		{"?limit=100", all},
		{"?state=finished", []string{bad, good}},
		{"?state=running", []string{running}},
		{"?state=queued", []string{queued}},
		{"?taskId=build", []string{running, bad}},
		{"?taskId=build&state=finished", []string{bad}},
		{"?taskId=buil", []string{}},
		{"?policy=open", []string{bad}},
		{"?policy=strict&state=finished", []string{good}},
		{"?agent=command", all},
		{"?agent=pi", []string{}},
		{"?before=" + bad, []string{good}},
		{"?before=" + strings.ToUpper(bad), []string{good}},
		{"?taskId=build&state=finished&limit=1&before=" + running, []string{bad}},
		{"?before=00000000000000000000000000", []string{}},
	} {
		list := get[api.ExecutionList](h, "/v1/executions"+tt.query)
		if !slices.Equal(ids(list), tt.want) || list.Next != "" {
			t.Errorf("%q: %v and next %q, want %v", tt.query, ids(list), list.Next, tt.want)
		}
	}

	list := get[api.ExecutionList](h, "/v1/executions?taskId=build")
	if x := list.Executions[0]; x.State != api.StateRunning || x.Outcome != nil || x.TaskID != "build" || x.Agent != "command" || x.AcceptedAt.IsZero() {
		t.Errorf("the run that goes on: %+v", x)
	}
	x := list.Executions[1]
	if x.Policy != "open" || x.Outcome == nil || x.Outcome.Success || x.Outcome.Code != api.CodeCommandFailed || x.Outcome.StopReason != "error_exit_3" {
		t.Errorf("the run that failed: %+v and %+v", x, x.Outcome)
	}
}

// TestListPages goes through all pages, also across the end of an executor.
func TestListPages(t *testing.T) {
	h := start(t)
	var all []string
	for range 5 {
		all = append(all, h.post(command("true")).ExecutionID)
	}
	h.end()
	h.boot()
	defer h.end()
	slices.Sort(all)
	slices.Reverse(all)
	var seen []string
	for query := "?limit=2"; ; {
		list := get[api.ExecutionList](h, "/v1/executions"+query)
		seen = append(seen, ids(list)...)
		if list.Next == "" {
			break
		}
		if len(list.Executions) != 2 || len(seen) > len(all) {
			t.Fatalf("a page that is not the last has %v, after %v", ids(list), seen)
		}
		query = fmt.Sprintf("?limit=2&before=%s", list.Next)
	}
	if !slices.Equal(seen, all) {
		t.Errorf("the pages have %v, want %v", seen, all)
	}
}

// TestListOutcome wants a run's refusals counted by host, and a record that
// cannot be read told from one that is good.
func TestListOutcome(t *testing.T) {
	h := start(t)
	id := h.begin(command("echo begun; sleep 60"))
	h.awaitText(id, "begun")
	for _, host := range []string{"a.example", "b.example"} {
		h.gate.decide(account.Record{Kind: account.KindDNS, Host: host, Verdict: firewall.Deny, Reason: firewall.ReasonNotListed})
		h.gate.decide(account.Record{Kind: account.KindTLS, Host: host, Port: 443, Verdict: firewall.Deny, Reason: firewall.ReasonNotListed})
	}
	h.gate.decide(account.Record{Kind: account.KindTLS, Host: "c.example", Port: 443, Verdict: firewall.Allow, Reason: firewall.ReasonListed})
	h.do(http.MethodDelete, "/v1/executions/"+id, "")
	h.finish(id)
	if x := get[api.ExecutionList](h, "/v1/executions").Executions[0]; x.Outcome == nil || x.Outcome.Code != api.CodeCancelled || x.Outcome.Refused != 2 {
		t.Errorf("%+v", x.Outcome)
	}
	h.end()
	for _, lost := range []string{statedir.Database(h.config.State), filepath.Join(h.config.State, "executions", id, "result.json")} {
		if err := os.Remove(lost); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(h.config.State, "executions", id, "result.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.boot()
	defer h.end()
	if x := get[api.ExecutionList](h, "/v1/executions").Executions[0]; x.Outcome == nil || x.Outcome.Success || x.Outcome.Code != api.CodeLost {
		t.Errorf("%+v", x.Outcome)
	}
}

func TestListRefused(t *testing.T) {
	h := start(t)
	for _, query := range []string{
		"?limit=0", "?limit=101", "?limit=-1", "?limit=1e2", "?limit=", "?limit=1&limit=2",
		"?state=done", "?state=", "?before=x", "?before=../../etc/passwd", "?before=0000000000000000000000000%00",
		"?task=build", "?taskId=", "?cursor=1",
	} {
		resp, data := h.do(http.MethodGet, "/v1/executions"+query, "")
		if p := decode[api.Problem](t, resp, data, http.StatusBadRequest); p.Code != api.CodeInvalidRequest {
			t.Errorf("%q: %+v", query, p)
		}
	}
	if resp, _ := h.do(http.MethodGet, "/v1/executions", "", "Authorization", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", resp.Status)
	}
}

// TestWorkflow has an execution say which task of which workflow it is, while it runs, when
// it has ended, and after a restart.
func TestWorkflow(t *testing.T) {
	h := start(t)
	want := api.Workflow{Definition: "release", Version: "1.0.0", Instance: "wf-17", Task: "build"}
	body := strings.TrimSuffix(command("echo begun; sleep 60"), "}") +
		`,"opts":{"workflow":{"definition":"release","version":"1.0.0","instance":"wf-17","task":"build"}}}`
	id := h.begin(body)
	h.awaitText(id, "begun")
	shown := func(when string) {
		t.Helper()
		if x := get[api.Execution](h, "/v1/executions/"+id); x.Workflow == nil || *x.Workflow != want {
			t.Errorf("%s: %+v", when, x.Workflow)
		}
	}
	shown("while it runs")
	h.do(http.MethodDelete, "/v1/executions/"+id, "")
	h.finish(id)
	h.end()
	h.boot()
	defer h.end()
	shown("after a restart")
	if x := get[api.Execution](h, "/v1/executions/"+h.post(command("true")).ExecutionID); x.Workflow != nil {
		t.Errorf("a run of no workflow: %+v", x.Workflow)
	}
}
