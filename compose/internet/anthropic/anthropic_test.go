package anthropic

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const key = "sk-test"

// bashTool is a tool as pi declares it: strict, so that what is optional is
// demanded and may be null.
const bashTool = `{"name":"bash","input_schema":{"type":"object","required":["command","timeout"],
	"properties":{"command":{"type":"string"},"timeout":{"anyOf":[{"type":"number"},{"type":"null"}]}}}}`

const writeTool = `{"name":"write","input_schema":{"type":"object","required":["path","content"],
	"properties":{"path":{"type":"string"},"content":{"type":"string"}}}}`

func start(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(&Server{Keys: []string{key}, Models: Models, Script: Demo("docs.example", "refused.example")})
	t.Cleanup(s.Close)
	return s
}

// call posts a body with good headers, which edit may spoil.
func call(t *testing.T, s *httptest.Server, body string, edit func(http.Header)) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.URL+"/v1/messages", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("x-api-key", key)
	req.Header.Set("anthropic-version", "2023-06-01")
	req.Header.Set("Content-Type", "application/json")
	if edit != nil {
		edit(req.Header)
	}
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (*http.Response, []byte) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, answer
}

func body(messages string) string {
	return `{"model":"claude-sonnet-4-6","max_tokens":1000,"tools":[` + bashTool + "," + writeTool + `],"messages":[` + messages + `]}`
}

func TestRefusals(t *testing.T) {
	s := start(t)
	good := body(`{"role":"user","content":"script:plain"}`)
	use := `{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"bash","input":{}}]}`
	for _, tc := range []struct {
		name    string
		body    string
		edit    func(http.Header)
		status  int
		kind    string
		message string
	}{
		{"no key", good, func(h http.Header) { h.Del("x-api-key") }, 401, "authentication_error", "x-api-key header is required"},
		{"wrong key", good, func(h http.Header) { h.Set("x-api-key", "sk-other") }, 401, "authentication_error", "invalid x-api-key"},
		{"no version", good, func(h http.Header) { h.Del("anthropic-version") }, 400, "invalid_request_error", "anthropic-version"},
		{"a form", good, func(h http.Header) { h.Set("Content-Type", "text/plain") }, 400, "invalid_request_error", "Content-Type"},
		{"not JSON", `{`, nil, 400, "invalid_request_error", "not valid JSON"},
		{"no model", `{"max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, nil, 400, "invalid_request_error", "model: Field required"},
		{"unknown model", strings.Replace(good, "sonnet", "sonet", 1), nil, 404, "not_found_error", "model: claude-sonet-4-6"},
		{"no max_tokens", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, nil, 400, "invalid_request_error", "max_tokens: Field required"},
		{"no messages", body(""), nil, 400, "invalid_request_error", "at least one message"},
		{"assistant first", body(`{"role":"assistant","content":"x"}`), nil, 400, "invalid_request_error", "first message must use"},
		{"odd role", body(`{"role":"user","content":"x"},{"role":"tool","content":"y"}`), nil, 400, "invalid_request_error", "messages.1.role"},
		{"empty content", body(`{"role":"user","content":[]}`), nil, 400, "invalid_request_error", "non-empty content"},
		{"empty text", body(`{"role":"user","content":""}`), nil, 400, "invalid_request_error", "non-empty"},
		{"use without a result", body(use), nil, 400, "invalid_request_error", "without `tool_result` blocks immediately after: t1"},
		{"use answered by words", body(use + `,{"role":"user","content":"hm"}`), nil, 400, "invalid_request_error", "messages.1: `tool_use`"},
		{"result of nothing", body(`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t9"}]}`), nil, 400, "invalid_request_error", "unexpected `tool_use_id`"},
		{"a thread", strings.Replace(good, `"max_tokens"`, `"thread":{"type":"create"},"max_tokens"`, 1), nil, 400, "invalid_request_error", "threads"},
		{"too large", `{"pad":"` + strings.Repeat("x", MaxBody) + `"}`, nil, 413, "request_too_large", "maximum size"},
		{"overloaded", body(`{"role":"user","content":"script:overloaded"}`), nil, 529, "overloaded_error", "Overloaded"},
		{"quota", body(`{"role":"user","content":"script:quota"}`), nil, 429, "rate_limit_error", "rate limit"},
		{"credit", body(`{"role":"user","content":"script:credit"}`), nil, 400, "invalid_request_error", "credit balance"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, answer := call(t, s, tc.body, tc.edit)
			var e struct {
				Type      string
				RequestID string `json:"request_id"`
				Error     struct{ Type, Message string }
			}
			if err := json.Unmarshal(answer, &e); err != nil {
				t.Fatalf("the answer is not JSON: %v: %s", err, answer)
			}
			if resp.StatusCode != tc.status || e.Type != "error" || e.Error.Type != tc.kind || !strings.Contains(e.Error.Message, tc.message) {
				t.Errorf("got %d %s, want %d %s %q", resp.StatusCode, answer, tc.status, tc.kind, tc.message)
			}
			if e.RequestID == "" || resp.Header.Get("request-id") != e.RequestID {
				t.Errorf("request-id header %q, body %q", resp.Header.Get("request-id"), e.RequestID)
			}
		})
	}
	if resp, answer := call(t, s, good, nil); resp.StatusCode != 200 {
		t.Errorf("the good request got %d %s", resp.StatusCode, answer)
	}
}

func TestZeroValueRefuses(t *testing.T) {
	s := httptest.NewServer(&Server{})
	defer s.Close()
	for _, k := range []string{"", key} {
		if resp, _ := call(t, s, body(`{"role":"user","content":"x"}`), func(h http.Header) { h.Set("x-api-key", k) }); resp.StatusCode != 401 {
			t.Errorf("key %q got %d, want 401", k, resp.StatusCode)
		}
	}
}

func TestPathsAndMethods(t *testing.T) {
	s := start(t)
	for _, tc := range []struct {
		method, path string
		status       int
		want         string
	}{
		{"GET", "/v1/models", 200, `"id":"claude-sonnet-4-6"`},
		{"GET", "/v1/models/claude-sonnet-4-6", 200, `"type":"model"`},
		{"GET", "/v1/models/claude-0", 404, "not_found_error"},
		{"GET", "/v1/messages", 405, "Method Not Allowed"},
		{"POST", "/v1/models", 405, "Method Not Allowed"},
		{"POST", "/v1/complete", 404, "not_found_error"},
	} {
		req, err := http.NewRequest(tc.method, s.URL+tc.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-api-key", key)
		req.Header.Set("anthropic-version", "2023-06-01")
		resp, answer := do(t, req)
		if resp.StatusCode != tc.status || !bytes.Contains(answer, []byte(tc.want)) {
			t.Errorf("%s %s: got %d %s, want %d with %s", tc.method, tc.path, resp.StatusCode, answer, tc.status, tc.want)
		}
	}
}

// message is an answer as an SDK would put it together.
type message struct {
	ID         string `json:"id"`
	Model      string `json:"model"`
	Role       string `json:"role"`
	Content    []Block
	StopReason string `json:"stop_reason"`
	Usage      usage
	pings      int
}

// read puts a stream together and fails on anything out of order.
func read(t *testing.T, stream io.Reader) message {
	t.Helper()
	var m message
	var partial string
	over := false
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	name := ""
	for lines.Scan() {
		line := lines.Text()
		if n, ok := strings.CutPrefix(line, "event: "); ok {
			name = n
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type         string
			Index        int
			Message      message
			ContentBlock Block `json:"content_block"`
			Delta        struct {
				Type, Text, Thinking, Signature string
				PartialJSON                     string `json:"partial_json"`
				StopReason                      string `json:"stop_reason"`
			}
			Usage usage
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatalf("event %s: %v", data, err)
		}
		if e.Type != name || over {
			t.Fatalf("event %q says type %q, after the end: %v", name, e.Type, over)
		}
		switch e.Type {
		case "message_start":
			m = e.Message
		case "content_block_start":
			if e.Index != len(m.Content) {
				t.Fatalf("block %d starts as number %d", e.Index, len(m.Content))
			}
			m.Content, partial = append(m.Content, e.ContentBlock), ""
		case "content_block_delta":
			b := &m.Content[e.Index]
			b.Text += e.Delta.Text
			b.Thinking += e.Delta.Thinking
			b.Signature += e.Delta.Signature
			partial += e.Delta.PartialJSON
		case "content_block_stop":
			if m.Content[e.Index].Type == "tool_use" {
				m.Content[e.Index].Input = json.RawMessage(partial)
			}
		case "message_delta":
			m.StopReason, m.Usage = e.Delta.StopReason, e.Usage
		case "ping":
			m.pings++
		case "message_stop":
			over = true
		default:
			t.Fatalf("unknown event %s", data)
		}
	}
	if err := lines.Err(); err != nil || !over {
		t.Fatalf("the stream ended early: %v", err)
	}
	return m
}

// TestDemo plays an agent: it answers each tool use until the model stops asking.
func TestDemo(t *testing.T) {
	s := start(t)
	for _, stream := range []bool{true, false} {
		history := `{"role":"user","content":"Have a look.\nThen report."}`
		var tools, thoughts []string
		var last message
		for turn := 0; ; turn++ {
			if turn > 5 {
				t.Fatal("the demo does not end")
			}
			b := strings.Replace(body(history), `"max_tokens"`, fmt.Sprintf(`"stream":%v,"thinking":{"type":"adaptive"},"max_tokens"`, stream), 1)
			resp, answer := call(t, s, b, nil)
			if resp.StatusCode != 200 {
				t.Fatalf("turn %d: %d %s", turn, resp.StatusCode, answer)
			}
			last = message{}
			if stream {
				last = read(t, bytes.NewReader(answer))
			} else if err := json.Unmarshal(answer, &last); err != nil {
				t.Fatal(err)
			}
			if last.StopReason != "tool_use" {
				break
			}
			said, err := json.Marshal(last.Content)
			if err != nil {
				t.Fatal(err)
			}
			history += `,{"role":"assistant","content":` + string(said) + `},{"role":"system","content":[]},{"role":"user","content":[`
			for _, c := range last.Content {
				switch c.Type {
				case "tool_use":
					tools = append(tools, c.Name+" "+string(c.Input))
					history += `{"type":"tool_result","tool_use_id":"` + c.ID + `","content":[{"type":"text","text":"it printed this"}]}`
				case "thinking":
					thoughts = append(thoughts, c.Thinking)
				}
			}
			history += `]}`
		}
		if len(tools) != 2 || !strings.Contains(tools[0], "curl -sS -m 10 https://docs.example/") || !strings.Contains(tools[0], `"timeout":null`) ||
			!strings.Contains(tools[1], "REPORT.md") || !strings.Contains(tools[1], "it printed this") || !strings.Contains(tools[1], "Task: Have a look.\\n\\n") {
			t.Errorf("stream %v: tools %q", stream, tools)
		}
		if len(thoughts) != 1 {
			t.Errorf("stream %v: thoughts %q, want one", stream, thoughts)
		}
		if last.StopReason != "end_turn" || last.Role != "assistant" || last.Model != "claude-sonnet-4-6" || last.ID == "" ||
			len(last.Content) != 1 || !strings.Contains(last.Content[0].Text, "REPORT.md") {
			t.Errorf("stream %v: the last message is %+v", stream, last)
		}
		if last.Usage.InputTokens < 10 || last.Usage.OutputTokens < 5 {
			t.Errorf("stream %v: usage %+v", stream, last.Usage)
		}
	}
}

func TestScripts(t *testing.T) {
	s := start(t)
	for _, tc := range []struct {
		prompt, stop, want string
	}{
		{"script:plain", "end_turn", "Hello"},
		{"please script:think", "end_turn", "Thought about it."},
		{"script:truncated", "max_tokens", "in the mid"},
		{"script:empty", "end_turn", ""},
		{"script:refusal", "refusal", "I will not."},
		{"script:endless", "tool_use", "Step 1."},
		{"script:nonsense", "tool_use", "two sites"}, // the server's own script
		{"script:shell\necho a\necho b", "tool_use", `echo a\necho b`},
	} {
		p, _ := json.Marshal(tc.prompt)
		_, answer := call(t, s, body(`{"role":"user","content":`+string(p)+`}`), nil)
		var m message
		if err := json.Unmarshal(answer, &m); err != nil {
			t.Fatal(err)
		}
		if m.StopReason != tc.stop || !strings.Contains(string(answer), tc.want) {
			t.Errorf("%q: got %s, want %s with %q", tc.prompt, answer, tc.stop, tc.want)
		}
	}
}

func TestToolThatIsNotThere(t *testing.T) {
	s := start(t)
	for _, tools := range []string{`[]`, `[` + writeTool + `]`, `[{"name":"bash","input_schema":{"required":["script"],"properties":{"script":{}}}}]`,
		`[{"name":"bash","input_schema":{"required":["command","shell"],"properties":{"command":{},"shell":{"type":"string"}}}}]`} {
		_, answer := call(t, s, `{"model":"claude-sonnet-4-6","max_tokens":9,"tools":`+tools+`,"messages":[{"role":"user","content":"go"}]}`, nil)
		if !bytes.Contains(answer, []byte("I have no tool bash")) || !bytes.Contains(answer, []byte(`"stop_reason":"end_turn"`)) {
			t.Errorf("tools %s: %s", tools, answer)
		}
	}
}

func TestSlowStreamPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/v1/messages", strings.NewReader(
			strings.Replace(body(`{"role":"user","content":"script:slow=61s"}`), `"max_tokens"`, `"stream":true,"max_tokens"`, 1)))
		r.Header.Set("x-api-key", key)
		r.Header.Set("anthropic-version", "2023-06-01")
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		(&Server{Keys: []string{key}, Models: Models}).ServeHTTP(w, r)
		m := read(t, w.Body)
		if took := time.Since(begin); took != 61*time.Second {
			t.Errorf("took %v, want 61s", took)
		}
		if m.pings != 1+13 || m.Content[0].Text != "Sorry for the wait." {
			t.Errorf("got %d pings and %+v", m.pings, m.Content)
		}
	})
}

func TestNewPromptStartsTheScriptAgain(t *testing.T) {
	r, err := ReadRequest(strings.NewReader(body(`{"role":"user","content":"one"},{"role":"assistant","content":"a"},{"role":"user","content":"two"}`)))
	if err != nil {
		t.Fatal(err)
	}
	if c := r.conversation(); c.Prompt != "two" || c.Turn != 0 {
		t.Errorf("got %+v, want the second prompt and turn 0", c)
	}
}

// TestRealRequest has what pi 1.5.2 sent after its first tool ran: strict tools, a
// system message in mid-conversation, blocks of reasoning.
func TestRealRequest(t *testing.T) {
	p, err := os.ReadFile("testdata/pi-second-turn.json")
	if err != nil {
		t.Fatal(err)
	}
	req, err := ReadRequest(bytes.NewReader(p))
	if err != nil {
		t.Fatal(err)
	}
	c := req.conversation()
	if c.Prompt != "Look" || c.Turn != 1 || len(c.Results) != 1 || !strings.Contains(c.Results[0].Text, "documentation") {
		t.Errorf("got %+v", c)
	}
	turn := Demo("docs.example", "refused.example")(c)
	if len(turn.Tools) != 1 || turn.Tools[0].Name != "write" {
		t.Errorf("the demo goes on with %+v, want the write tool", turn)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(body(`{"role":"user","content":"script:shell\nls"}`)))
	f.Add([]byte(body(`{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"bash","input":{}}]},` +
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"y"}]}`)))
	s := &Server{Keys: []string{key}, Models: Models}
	f.Fuzz(func(t *testing.T, p []byte) {
		req, err := ReadRequest(bytes.NewReader(p))
		if err != nil {
			if e, ok := err.(*Error); !ok || e.Status < 400 {
				t.Fatalf("error %v is not one of the provider's", err)
			}
			return
		}
		turn := Demo("a.example", "b.example")(req.conversation())
		if a := s.answer(req, turn); len(turn.Tools) > 0 && a.stop != "tool_use" {
			t.Fatalf("a turn with tools stops with %q", a.stop)
		}
	})
}
