package executor_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/statedir"
)

func TestToken(t *testing.T) {
	h := start(t)
	for _, tt := range []struct {
		header string
		want   int
	}{
		{"Bearer " + testToken, 200},
		{"bearer " + testToken, 200},
		{"", 401},
		{"Bearer", 401},
		{"Bearer ", 401},
		{"Bearer " + testToken + "x", 401},
		{"Bearer " + testToken[:len(testToken)-1], 401},
		{"Basic " + testToken, 401},
		{testToken, 401},
	} {
		resp, data := h.do(http.MethodGet, "/v1/capabilities", "", "Authorization", tt.header)
		if resp.StatusCode != tt.want {
			t.Errorf("Authorization %q: %s", tt.header, resp.Status)
		}
		if tt.want == 401 {
			p := decode[api.Problem](t, resp, data, 401)
			if p.Code != api.CodeUnauthorized || resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("problem %+v, header %v", p, resp.Header)
			}
		}
	}
	for _, path := range []string{"/v1/executions", "/v1/executions/x/events", "/nowhere", "/v1/boundary/check"} {
		if resp, _ := h.do(http.MethodPost, path, "{}", "Authorization", ""); resp.StatusCode != 401 {
			t.Errorf("POST %s without a token: %s", path, resp.Status)
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		if resp, _ := h.do(http.MethodGet, path, "", "Authorization", ""); resp.StatusCode != 200 {
			t.Errorf("GET %s without a token: %s", path, resp.Status)
		}
	}
}

// The socket is its owner's alone, and one that was left behind is in nobody's way.
func TestListenSocket(t *testing.T) {
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 4711, 4712); err != nil {
			t.Fatal(err)
		}
	}
	path := statedir.SocketFile(dir)
	for range 2 {
		ln, err := executor.ListenSocket(path)
		if err != nil {
			t.Fatal(err)
		}
		ln.(*net.UnixListener).SetUnlinkOnClose(false) // as after a kill
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		got, owner := info.Sys().(*syscall.Stat_t), want.Sys().(*syscall.Stat_t)
		if info.Mode() != fs.ModeSocket|0o600 || got.Uid != owner.Uid || got.Gid != owner.Gid {
			t.Errorf("mode %v, owner %d:%d", info.Mode(), got.Uid, got.Gid)
		}
		ln.Close()
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, path := range map[string]string{"something else": file, "bytes": filepath.Join(dir, strings.Repeat("x", 200))} {
		if _, err := executor.ListenSocket(path); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "precious" {
		t.Errorf("the file: %q, %v", text, err)
	}
}

// TestRefusedRequests checks that each refusal names the field and starts nothing.
// beyondTheDocument are the rows of TestRefusedRequests of which the OpenAPI document
// says nothing: what a schema cannot say, and what depends on the service's settings.
var beyondTheDocument = []string{
	"trailing data", "bad UTF-8", "twice", "twice below", "contradiction", "two backends", "absolute glob", "leaving glob", "bad glob", "glob with a dot",
	"glob with two slashes", "glob with a slash at its end", "glob of many braces", "cwd with dots", "unknown agent", "unknown model", "no key for the model", "no argv", "unknown policy", "unknown backend", "gondolin", "none", "unknown tier",
	"another image", "long timeout", "services", "two models", "skills elsewhere", "cwd elsewhere", "cwd absent", "no search key",
}

// TestRefusedRequests asks for what cannot be; the document refuses it as well where
// it can.
func TestRefusedRequests(t *testing.T) {
	h := start(t)
	for _, tt := range []struct {
		name, body string
		status     int
		code       api.Code
		field      string
		detail     string // is part of the problem's
	}{
		{"empty body", " ", 400, api.CodeInvalidRequest, "", "empty"},
		{"no JSON", "{", 400, api.CodeInvalidRequest, "", "not JSON"},
		{"array", "[]", 400, api.CodeInvalidRequest, "", "object"},
		{"null", "null", 400, api.CodeInvalidRequest, "", "object"},
		{"trailing data", `{"prompt":"p"} {}`, 400, api.CodeInvalidRequest, "", "after top-level value"},
		{"bad UTF-8", "{\"prompt\":\"\xff\"}", 400, api.CodeInvalidRequest, "", "UTF-8"},
		{"deep", `{"opts":{"githubAccess":` + strings.Repeat("[", 1<<20), 400, api.CodeInvalidRequest, "", "not JSON"},
		{"no prompt", `{}`, 400, api.CodeInvalidRequest, "prompt", "empty"},
		{"blank prompt", `{"prompt":" \n"}`, 400, api.CodeInvalidRequest, "prompt", "empty"},
		{"unknown field", `{"prompt":"p","promt":"q"}`, 400, api.CodeInvalidRequest, "promt", "known here are prompt, config, opts"},
		{"unknown field below", `{"prompt":"p","config":{"modle":"x"}}`, 400, api.CodeInvalidRequest, "config.modle", "unknown field"},
		{"other case", `{"prompt":"p","config":{"CWD":"/"}}`, 400, api.CodeInvalidRequest, "config.CWD", `spelt "cwd"`},
		{"twice", `{"prompt":"p","prompt":"q"}`, 400, api.CodeInvalidRequest, "prompt", "twice"},
		{"twice below", `{"prompt":"p","config":{"egress":"strict","egress":"open"}}`, 400, api.CodeInvalidRequest, "config.egress", "twice"},
		{"wrong type", `{"prompt":5}`, 400, api.CodeInvalidRequest, "prompt", "must be a string"},
		{"wrong type below", `{"prompt":"p","config":{"timeoutMs":"5"}}`, 400, api.CodeInvalidRequest, "config.timeoutMs", "whole number"},
		{"fraction", `{"prompt":"p","config":{"timeoutMs":1.5}}`, 400, api.CodeInvalidRequest, "config.timeoutMs", "whole number"},
		{"unknown agent", `{"prompt":"p","config":{"agent":"clippy"}}`, 422, api.CodeInvalidRequest, "config.agent", "pi, agentic-pi, command"},
		{"unknown model", `{"prompt":"p","config":{"model":"acme/large"}}`, 422, api.CodeInvalidRequest, "config.model", "acme"},
		{"no key for the model", `{"prompt":"p","config":{"model":"openai/gpt-5"}}`, 422, api.CodeInvalidRequest, "config.model", "OPENAI_API_KEY"},
		{"no argv", `{"prompt":"p","config":{"agent":"command"}}`, 422, api.CodeInvalidRequest, "config.argv", "missing"},
		{"unknown policy", command("true", `"egress":"lax"`), 422, api.CodePolicyDenied, "config.egress", "open, strict"},
		{"contradiction", command("true", `"egress":"strict"`, `"unrestrictedEgress":true`), 400, api.CodeInvalidRequest, "config.unrestrictedEgress", "contradicts"},
		{"unknown backend", command("true", `"backend":"chroot"`), 422, api.CodeInvalidRequest, "config.backend", "docker"},
		{"two backends", command("true", `"backend":"docker"`, `"sandbox":"none"`), 400, api.CodeInvalidRequest, "config.sandbox", "give one"},
		{"gondolin", command("true", `"sandbox":"gondolin"`), 422, api.CodeCapability, "config.sandbox", "gondolin"},
		{"none", command("true", `"backend":"none"`), 422, api.CodeCapability, "config.backend", "none"},
		{"unknown tier", command("true", `"tier":"huge"`), 422, api.CodeInvalidRequest, "config.tier", "standard"},
		{"another image", command("true", `"sandboxImage":"evil:latest"`), 422, api.CodeInvalidRequest, "config.sandboxImage", "agent:test"},
		{"negative timeout", command("true", `"timeoutMs":-1`), 422, api.CodeInvalidRequest, "config.timeoutMs", "between"},
		{"long timeout", command("true", `"timeoutMs":3600001`), 422, api.CodeInvalidRequest, "config.timeoutMs", "3600000"},
		{"absolute glob", command("true", `"artifacts":["/etc/*"]`), 422, api.CodeInvalidRequest, "config.artifacts", "relative"},
		{"leaving glob", command("true", `"artifacts":["a/../../b"]`), 422, api.CodeInvalidRequest, "config.artifacts", "within"},
		{"bad glob", command("true", `"artifacts":["[a"]`), 422, api.CodeInvalidRequest, "config.artifacts", "glob"},
		{"glob with a dot", command("true", `"artifacts":["./a"]`), 422, api.CodeInvalidRequest, "config.artifacts", "shortest form"},
		{"glob with two slashes", command("true", `"artifacts":["a//b"]`), 422, api.CodeInvalidRequest, "config.artifacts", "shortest form"},
		{"glob with a slash at its end", command("true", `"artifacts":["a/"]`), 422, api.CodeInvalidRequest, "config.artifacts", "shortest form"},
		{"glob of many braces", command("true", `"artifacts":["`+strings.Repeat("{a,b}", 9)+`"]`), 422, api.CodeInvalidRequest, "config.artifacts", "8 opening braces"},
		{"skills elsewhere", command("true", `"skillPaths":["/etc"]`), 422, api.CodeInvalidRequest, "config.skillPaths", h.root},
		{"services", command("true", `"services":[{"name":"db"}]`), 422, api.CodeCapability, "config.services", "not offered"},
		{"collector", command("true", `"telemetry":{"endpoint":"https://collector.example"}`), 400, api.CodeInvalidRequest, "config.telemetry.endpoint", "known here are workflowName, phaseName"},
		{"phase", command("true", `"telemetry":{"phaseName":"a\nb"}`), 422, api.CodeInvalidRequest, "config.telemetry.phaseName", "printable"},
		{"two models", command("true", `"model":"a/b","models":{"default":"a/c"}`), 400, api.CodeInvalidRequest, "config.models", "give one"},
		{"GitHub", `{"prompt":"p","opts":{"githubAccess":{"owner":"o"}}}`, 422, api.CodeCapability, "opts.githubAccess", "not offered"},
		{"cwd elsewhere", command("true", `"cwd":"/etc"`), 422, api.CodeInvalidRequest, "config.cwd", h.root},
		{"cwd absent", command("true", `"cwd":"`+h.root+`/absent"`), 422, api.CodeInvalidRequest, "config.cwd", "does not exist"},
		{"cwd with dots", command("true", `"cwd":"`+h.root+`/../x"`), 422, api.CodeInvalidRequest, "config.cwd", "shortest form"},
		{"relative cwd", command("true", `"cwd":"project"`), 422, api.CodeInvalidRequest, "config.cwd", "absolute"},
		{"no search key", command("true", `"webSearch":true`), 422, api.CodeInvalidRequest, "config.webSearch", "TAVILY_API_KEY"},
		{"workflow without an instance", `{"prompt":"p","opts":{"workflow":{"definition":"release"}}}`, 422, api.CodeInvalidRequest, "opts.workflow.instance", "required"},
		{"workflow with a long name", `{"prompt":"p","opts":{"workflow":{"definition":"release","instance":"1","task":"` + strings.Repeat("t", 257) + `"}}}`, 422, api.CodeInvalidRequest, "opts.workflow.task", "256"},
		{"task id", `{"prompt":"p","opts":{"taskId":"a\nb"}}`, 422, api.CodeInvalidRequest, "opts.taskId", "printable"},
	} {
		asked := h.client.Transport.(*checker).refuses(h.request(http.MethodPost, "/v1/executions", tt.body))
		if beyond := slices.Contains(beyondTheDocument, tt.name); beyond != (asked == nil) {
			t.Errorf("%s: the document says %v; whether it can tell: %v", tt.name, asked, !beyond)
		}
		resp, data := h.do(http.MethodPost, "/v1/executions", tt.body)
		p := decode[api.Problem](t, resp, data, tt.status)
		field, _ := p.Details["field"].(string)
		if p.Code != tt.code || field != tt.field || !strings.Contains(p.Detail, tt.detail) {
			t.Errorf("%s: code %s, field %q, detail %q", tt.name, p.Code, field, p.Detail)
		}
		if tt.code == api.CodeCapability && p.Details["requestedCapability"] == nil {
			t.Errorf("%s: no details.requestedCapability", tt.name)
		}
		if resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: Content-Type %q", tt.name, resp.Header.Get("Content-Type"))
		}
	}
	if left, _ := os.ReadDir(filepath.Join(h.config.State, "executions")); len(left) != 0 || len(h.gate.granted) != 0 {
		t.Errorf("something was started: %v, %v", left, h.gate.granted)
	}
	if res := h.post(command("true", `"services":null`, `"skillPaths":[]`, `"sandbox":"docker"`, `"sandboxImage":"agent:test"`, `"tier":"standard"`,
		`"artifacts":["a/**/b","`+strings.Repeat("{a,b}", 8)+`"]`)); !res.Success {
		t.Errorf("the control: %v", res.Error)
	}
}

func TestRefusedCalls(t *testing.T) {
	h := start(t)
	id := h.begin(command("true"))
	h.finish(id)
	large := `{"prompt":"` + strings.Repeat("x", 8<<20) + `"}`
	for _, tt := range []struct {
		method, path, body string
		header             []string
		status             int
	}{
		{"GET", "/nowhere", "", nil, 404},
		{"GET", "/v1/executions/" + strings.Repeat("0", 26), "", nil, 404},
		{"GET", "/v1/executions/..%2f..%2ftoken", "", nil, 404},
		{"DELETE", "/v1/executions/unknown", "", nil, 404},
		{"GET", "/v1/executions/unknown/events", "", nil, 404},
		{"GET", "/v1/executions/unknown/artifacts", "", nil, 404},
		{"GET", "/v1/executions/unknown/artifacts/a", "", nil, 404},
		{"GET", "/v1/executions/" + id + "/artifacts/absent", "", nil, 404},
		{"GET", "/v1/executions/" + id + "/artifacts/..%2frequest.json", "", nil, 404},
		{"GET", "/v1/executions/" + id + "/artifacts/%2fetc%2fpasswd", "", nil, 404},
		{"PUT", "/v1/executions", "{}", nil, 405},
		{"PUT", "/v1/executions/" + id, "{}", nil, 405},
		{"POST", "/healthz", "{}", nil, 405},
		{"POST", "/v1/executions", "prompt=p", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415},
		{"POST", "/v1/executions", command("true"), []string{"Content-Type", ""}, 415},
		{"POST", "/v1/executions", command("true"), []string{"Accept", "text/html"}, 406},
		{"POST", "/v1/executions", command("true"), []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400},
		{"POST", "/v1/executions", large, nil, 413},
		{"GET", "/v1/executions/" + id + "/events?after=-1", "", nil, 400},
		{"GET", "/v1/executions/" + id + "/events?after=x", "", nil, 400},
		{"GET", "/v1/executions/" + id + "/events?follow=perhaps", "", nil, 400},
		{"GET", "/v1/executions/" + id + "/events?since=1", "", nil, 400},
		{"GET", "/v1/executions/" + id + "/events", "", []string{"Accept", "application/json"}, 406},
	} {
		resp, data := h.do(tt.method, tt.path, tt.body, tt.header...)
		p := decode[api.Problem](t, resp, data, tt.status)
		if p.Status != tt.status || p.Detail == "" || p.Code == "" {
			t.Errorf("%s %s: %+v", tt.method, tt.path, p)
		}
		if tt.status == 405 && resp.Header.Get("Allow") == "" {
			t.Errorf("%s %s: no Allow", tt.method, tt.path)
		}
	}
}

func TestStreamNDJSON(t *testing.T) {
	h := start(t)
	resp, data := h.do(http.MethodPost, "/v1/executions", command("echo out"), "Accept", "application/x-ndjson")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%s, %v", resp.Status, resp.Header)
	}
	events := parseEvents(t, data)
	if first := events[0]; first.Seq != 1 || first.Type != api.EventAccepted || first.Execution == "" {
		t.Errorf("first event = %+v", first)
	}
	results := 0
	var stages []string
	for _, ev := range events {
		if ev.Type == api.EventResult {
			results++
		}
		if ev.Type == api.EventStage {
			stages = append(stages, ev.Stage)
		}
	}
	if results != 1 || events[len(events)-1].Type != api.EventResult {
		t.Errorf("%d results in %v", results, events)
	}
	if want := []string{"queue", "cell", "start", "ready", "running", "teardown"}; !slices.Equal(stages, want) {
		t.Errorf("stages = %v", stages)
	}
}

func TestStreamSSE(t *testing.T) {
	h := start(t)
	resp, data := h.do(http.MethodPost, "/v1/executions", command(`printf 'a\nb\n'`), "Accept", "text/event-stream")
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %v", resp.Status, resp.Header)
	}
	messages := strings.Split(strings.TrimSuffix(string(data), "\n\n"), "\n\n")
	var last api.Event
	for i, m := range messages {
		id, rest, _ := strings.Cut(m, "\n")
		name, body, _ := strings.Cut(rest, "\n")
		var ev api.Event
		if err := json.Unmarshal([]byte(strings.TrimPrefix(body, "data: ")), &ev); err != nil {
			t.Fatalf("message %q: %v", m, err)
		}
		if id != fmt.Sprintf("id: %d", i+1) || name != "event: "+string(ev.Type) || ev.Seq != int64(i+1) {
			t.Errorf("message %d = %q", i, m)
		}
		last = ev
	}
	if last.Result == nil || !last.Result.Success {
		t.Fatalf("last = %+v", last)
	}
	path := "/v1/executions/" + last.Result.ExecutionID + "/events"
	seq := fmt.Sprint(last.Seq)
	if resp, _ = h.do(http.MethodGet, path, "", "Accept", "text/event-stream", "Last-Event-ID", seq); resp.StatusCode != 204 {
		t.Errorf("after the last event: %s", resp.Status)
	}
	_, data = h.do(http.MethodGet, path, "", "Accept", "text/event-stream", "Last-Event-ID", fmt.Sprint(last.Seq-1))
	if !strings.HasPrefix(string(data), "id: "+seq+"\n") {
		t.Errorf("after the last but one: %q", data)
	}
	if _, data = h.do(http.MethodGet, path+"?after="+fmt.Sprint(last.Seq-2), ""); len(parseEvents(t, data)) != 2 {
		t.Errorf("after=%d: %s", last.Seq-2, data)
	}
	if resp, data = h.do(http.MethodGet, path+"?after="+seq, ""); resp.StatusCode != 200 || len(data) != 0 {
		t.Errorf("after=%s: %s %q", seq, resp.Status, data)
	}
}

// TestDisconnect leaves a stream in the middle: the run goes on, and another
// caller gets every event.
func TestDisconnect(t *testing.T) {
	t.Parallel()
	h := start(t)
	resp, err := h.client.Do(h.request(http.MethodPost, "/v1/executions", command("echo one; sleep 1; echo two"), "Accept", "application/x-ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	var first api.Event
	if err := json.NewDecoder(resp.Body).Decode(&first); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	res := h.finish(first.Execution)
	if !res.Success || res.Output != "one\ntwo\n" {
		t.Errorf("result = %+v", res)
	}
}

func TestNoFollow(t *testing.T) {
	h := start(t)
	id := h.begin(command("echo begun; sleep 60"))
	h.awaitText(id, "begun")
	events := h.events(id, "?follow=false")
	if len(events) == 0 || events[len(events)-1].Type == api.EventResult {
		t.Errorf("events = %v", events)
	}
	if list := get[api.ArtifactList](h, "/v1/executions/"+id+"/artifacts"); list.Artifacts == nil || len(list.Artifacts) != 0 {
		t.Errorf("artifacts of a run under way: %v", list)
	}
	h.do(http.MethodDelete, "/v1/executions/"+id, "")
	h.finish(id)
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	h := start(t)
	res := h.post(command(`mkdir -p out/deep; printf hello > out/deep/a.txt; printf b > 'out/b c.txt'; ln -s /etc/passwd out/link.txt; mkfifo out/pipe.txt; echo no > other`,
		`"artifacts":["out/**/*.txt"]`))
	if !res.Success {
		t.Fatal(res.Error)
	}
	kept := map[string]api.Artifact{}
	for _, a := range res.Artifacts {
		kept[a.Name] = a
	}
	sum := sha256.Sum256([]byte("hello"))
	if a := kept["out/deep/a.txt"]; a.Size != 5 || a.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("a.txt = %+v of %+v", a, res.Artifacts)
	}
	for _, name := range []string{"out/link.txt", "out/pipe.txt"} {
		if a, ok := kept[name]; ok && a.Skipped == "" {
			t.Errorf("%s was kept", name)
		}
	}
	base := "/v1/executions/" + res.ExecutionID + "/artifacts"
	if list := get[api.ArtifactList](h, base); len(list.Artifacts) != len(res.Artifacts) {
		t.Errorf("list = %+v", list)
	}
	for _, path := range []string{"/out/deep/a.txt", "/out%2Fdeep%2Fa.txt"} {
		resp, data := h.do(http.MethodGet, base+path, "")
		if resp.StatusCode != 200 || string(data) != "hello" || resp.Header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s: %s %q %v", path, resp.Status, data, resp.Header)
		}
		if got := resp.Header.Get("Content-Disposition"); got != "attachment; filename=a.txt" {
			t.Errorf("Content-Disposition = %q", got)
		}
	}
	if resp, data := h.do(http.MethodGet, base+"/out/b%20c.txt", "", "Range", "bytes=0-0"); resp.StatusCode != 206 || string(data) != "b" {
		t.Errorf("range: %s %q", resp.Status, data)
	}
	if resp, _ := h.do(http.MethodGet, base+"/out", ""); resp.StatusCode != 404 {
		t.Errorf("a directory: %s", resp.Status)
	}
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	h := start(t)
	body := command("echo once; sleep 1")
	ids := make(chan string, 8)
	for range cap(ids) {
		go func() { ids <- h.begin(body, "Idempotency-Key", "key-1") }()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first {
			t.Errorf("executions %s and %s for one key", first, id)
		}
	}
	// The same request in other words, and waiting this time.
	var again map[string]any
	if err := json.Unmarshal([]byte(body), &again); err != nil {
		t.Fatal(err)
	}
	indented, _ := json.MarshalIndent(again, "", "  ")
	if res := h.post(string(indented), "Idempotency-Key", "key-1"); res.ExecutionID != first || res.Output != "once\n" {
		t.Errorf("result = %+v", res)
	}
	resp, data := h.do(http.MethodPost, "/v1/executions", command("echo other"), "Idempotency-Key", "key-1")
	if p := decode[api.Problem](t, resp, data, 422); p.Code != api.CodeIdempotencyReuse {
		t.Errorf("problem = %+v", p)
	}
	if len(h.backend.specs) != 1 {
		t.Errorf("%d sandboxes were started", len(h.backend.specs))
	}
	h.end()
	h.boot()
	defer h.end()
	if res := h.post(body, "Idempotency-Key", "key-1"); res.ExecutionID != first {
		t.Errorf("after a restart: execution %s, want %s", res.ExecutionID, first)
	}
	if res := h.post(body); res.ExecutionID == first {
		t.Error("without a key it is the same execution")
	}
}

func TestCapabilities(t *testing.T) {
	h := start(t, secret("EXA_API_KEY", "exa-key-0123456789"), secret("BRAVE_SEARCH_API_KEY", ""))
	h.post(command("true")) // the boundary is proven by then
	c := get[api.Capabilities](h, "/v1/capabilities")
	if !slices.Equal(c.Agents, []string{"pi", "agentic-pi", "command"}) || !slices.Equal(c.Policies, []string{"open", "strict"}) ||
		!slices.Equal(c.WebSearchProviders, []string{"exa"}) || c.PolicyDigest != "sha256:all" {
		t.Errorf("capabilities = %+v", c)
	}
	want := api.Sandbox{Supported: true, IsolationModel: "container", AllowedHostCalls: []string{"host.fetch"}, MemoryLimitBytes: 2 << 30, WallClockLimitMS: 3600000}
	if fmt.Sprint(c.Sandbox) != fmt.Sprint(want) {
		t.Errorf("sandbox = %+v", c.Sandbox)
	}
	h.gate.stop()
	resp, data := h.do(http.MethodGet, "/v1/capabilities", "")
	decode[api.Problem](t, resp, data, 503)
	resp, data = h.do(http.MethodGet, "/readyz", "")
	if r := decode[api.Readiness](t, resp, data, 503); r.Checks[0].Name != "gate" || r.Checks[0].Ready || !r.Checks[1].Ready {
		t.Errorf("readiness = %+v", r)
	}
}

// TestSupportedIsProven: that sandboxes are supported is what the last check of the
// boundary showed.
func TestSupportedIsProven(t *testing.T) {
	for _, tt := range []struct {
		name, failed string
		err          error
		want         bool
	}{
		{"no check could be made", "", errTest, false},
		{"it holds", "", nil, true},
		{"something got through", "the way out", nil, false},
	} {
		h := start(t, func(c *executor.Config) { c.Backends[0].Boundary.(*testBoundary).set(tt.failed, tt.err) })
		if tt.err == nil { // a run waits for the check
			h.post(command("true"))
		}
		if got := get[api.Capabilities](h, "/v1/capabilities").Sandbox.Supported; got != tt.want {
			t.Errorf("%s: supported = %v", tt.name, got)
		}
	}
}

// TestOfferedPolicies has an operator who lets requests name one policy of two.
func TestOfferedPolicies(t *testing.T) {
	t.Parallel()
	h := start(t, func(c *executor.Config) { c.Service.Policies = []string{"open", "gone"} })
	if c := get[api.Capabilities](h, "/v1/capabilities"); !slices.Equal(c.Policies, []string{"open"}) {
		t.Errorf("capabilities name the policies %q", c.Policies)
	}
	for _, egress := range []string{`"egress":"strict"`, `"egress":"gone"`, `"timeoutMs":5000`} {
		resp, data := h.do(http.MethodPost, "/v1/executions", command("true", egress))
		p := decode[api.Problem](t, resp, data, http.StatusUnprocessableEntity)
		if p.Code != api.CodePolicyDenied || p.Details["field"] != "config.egress" || fmt.Sprint(p.Details["known"]) != "[open]" {
			t.Errorf("%s: %+v", egress, p)
		}
	}
	if len(h.gate.granted) != 0 {
		t.Error("a cell was leased for a policy that is not offered")
	}
	if res := h.post(command("true", `"egress":"open"`)); !res.Success {
		t.Errorf("control: %v", res.Error)
	}
}

// TestReadiness takes away, one after another, what a run needs beside engine and
// boundary.
func TestReadiness(t *testing.T) {
	h := start(t)
	h.post(command("true"))
	check := func(name, want string) {
		t.Helper()
		h.later()
		resp, data := h.do(http.MethodGet, "/readyz", "")
		for _, c := range decode[api.Readiness](t, resp, data, http.StatusServiceUnavailable).Checks {
			if c.Ready == (c.Name == name) || c.Name == name && !strings.Contains(c.Detail, want) {
				t.Errorf("check %s: %+v", name, c)
			}
		}
	}
	deny := func(why string) {
		h.gate.mu.Lock()
		defer h.gate.mu.Unlock()
		h.gate.denying = why
	}
	deny("the disk is full")
	check("gate", "denies everything: the disk is full")
	resp, data := h.do(http.MethodPost, "/v1/executions", command("true"))
	if p := decode[api.Problem](t, resp, data, http.StatusServiceUnavailable); p.Code != api.CodeGateUnavailable || !p.Retryable {
		t.Errorf("a run under a gate that denies everything: %+v", p)
	}
	get[api.Capabilities](h, "/v1/capabilities")
	deny("")
	workspaces := filepath.Join(h.config.State, "workspaces")
	if err := os.Rename(workspaces, workspaces+".away"); err != nil {
		t.Fatal(err)
	}
	check("executor", "cannot be written")
	if err := os.Rename(workspaces+".away", workspaces); err != nil {
		t.Fatal(err)
	}
	h.later()
	if ready := get[api.Readiness](h, "/readyz"); !ready.Ready || len(ready.Checks) != 4 {
		t.Errorf("readiness = %+v", ready)
	}
	if left, err := os.ReadDir(workspaces); err != nil || len(left) != 0 {
		t.Errorf("looking has left %v, %v", left, err)
	}
}

// TestReadinessIsCheap asks as anybody may, without a token: neither the engine nor
// the disk has work by each call.
func TestReadinessIsCheap(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	h := start(t, func(c *executor.Config) {
		c.Backends[0].Usable = func(context.Context) error {
			asked.Add(1)
			return nil
		}
	})
	began := time.Now()
	for range 200 {
		get[api.Readiness](h, "/readyz")
	}
	if n, most := asked.Load(), 1+int64(time.Since(began)/time.Second); n == 0 || n > most {
		t.Errorf("the engine was asked %d times for 200 calls in %v, want at most %d", n, time.Since(began), most)
	}
}

func BenchmarkGetExecution(b *testing.B) {
	h := start(b)
	id := h.begin(command("true"))
	h.finish(id)
	h.bench(b, func() *http.Request { return h.request(http.MethodGet, "/v1/executions/"+id, "") }, 200)
}

func BenchmarkRefusedPost(b *testing.B) {
	h := start(b)
	body := command("true", `"egress":"none of these"`)
	h.bench(b, func() *http.Request { return h.request(http.MethodPost, "/v1/executions", body) }, 422)
}

func BenchmarkHealth(b *testing.B) {
	h := start(b)
	h.bench(b, func() *http.Request { return h.request(http.MethodGet, "/healthz", "") }, 200)
}

// bench makes requests on many connections at once.
func (h *harness) bench(b *testing.B, request func() *http.Request, status int) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	defer client.CloseIdleConnections()
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Do(request())
			if err != nil {
				b.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != status {
				b.Errorf("status %s", resp.Status)
				return
			}
		}
	})
}
