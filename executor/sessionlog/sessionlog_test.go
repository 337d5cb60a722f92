package sessionlog

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

func open(t *testing.T, dir, cwd string) *Log {
	t.Helper()
	l := New(dir, cwd, "01EXECUTION")
	l.now = func() time.Time { return time.Date(2026, 8, 20, 10, 0, 0, 123e6, time.FixedZone("", 7200)) }
	return l
}

// read returns the only file below dir, and its path there.
func read(t *testing.T, dir string) (string, []byte) {
	t.Helper()
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil || len(paths) != 1 {
		t.Fatalf("files %q, %v; want one", paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(paths[0], dir+"/"), text
}

// TestRecorded logs what pi printed in recorded runs and compares every line.
func TestRecorded(t *testing.T) {
	for _, name := range []string{"demo", "overloaded"} {
		stream, err := os.ReadFile("../agent/testdata/pi/" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		in := agent.Input{Prompt: "Look around <here> & report.", Config: api.Config{Model: "anthropic/claude-sonnet-4-6"}}
		p := agent.Pi{}.NewParser(in)
		dir := t.TempDir()
		l := open(t, dir, "/srv/work/app")
		l.Prompt(in.Prompt)
		for _, e := range p.Stdout(stream) {
			if err := l.Event(e); err != nil {
				t.Fatal(err)
			}
		}
		o := p.Finish(wire.Exit{})
		if err := l.Result(api.Result{Success: o.Err == nil, Output: o.Output, Turns: o.Turns, Error: o.Err, DurationMS: 1500, CostUSD: o.Usage.CostUSD,
			InputTokens: o.Usage.InputTokens, OutputTokens: o.Usage.OutputTokens, StopReason: o.StopReason}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		path, got := read(t, dir)
		if want := "projects/-srv-work-app/" + o.SessionID + ".jsonl"; path != want {
			t.Errorf("%s: logged to %s, want %s", name, path, want)
		}
		file := "testdata/" + name + ".golden"
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}

// TestEnvelopes checks the lines against the field names of the contract.
func TestEnvelopes(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, "/w")
	l.Prompt("do it")
	for _, e := range []api.Event{
		{Type: api.EventAccepted, Execution: "x"},
		{Type: api.EventStage, Stage: "running"},
		{Type: api.EventSession, SessionID: "s1", Model: "p/m"},
		{Type: api.EventText, MessageID: "m1", Text: "one"},
		{Type: api.EventThinking, MessageID: "m1", Text: "two"},
		{Type: api.EventToolStart, MessageID: "m1", Tool: &api.Tool{ID: "t1", Name: "bash", Args: json.RawMessage(`{"command":"ls"}`)}},
		{Type: api.EventUsage, MessageID: "m1", Model: "m", Usage: &api.Usage{InputTokens: 1, OutputTokens: 2, CacheReadTokens: 3, CacheCreationTokens: 4}},
		{Type: api.EventEgress},
		{Type: api.EventToolEnd, Tool: &api.Tool{ID: "t1", Name: "bash", Result: "", IsError: true}},
		{Type: api.EventUsage, MessageID: "m2", Usage: &api.Usage{}}, // a refused request: nothing to say
		{Type: api.EventRetry, Text: "again"},
		{Type: api.EventText, MessageID: "m3", Text: "no usage came"},
		{Type: api.EventToolStart, MessageID: "m4", Tool: &api.Tool{ID: "t2", Name: "read"}},
		{Type: api.EventWarning, Text: "careful"},
		{Type: api.EventStderr, Text: "noise"},
		{Type: api.EventOutput, Text: "raw"},
	} {
		if err := l.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Result(api.Result{Output: "", Turns: 2, StopReason: "error_agent", Error: &api.Error{Code: api.CodeAgentFailed, Message: "bad key"},
		CostUSD: 0.5, InputTokens: 1, OutputTokens: 2, CacheReadInputTokens: 3, CacheCreationInputTokens: 4, DurationMS: 5}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, text := read(t, dir)
	const at = `,"timestamp":"2026-08-20T08:00:00.123Z","sessionId":"s1"}`
	want := []string{
		`{"type":"user","message":{"role":"user","content":"do it"}`,
		`{"type":"system","subtype":"init","model":"p/m","cwd":"/w"`,
		`{"type":"assistant","message":{"role":"assistant","model":"m","content":[{"type":"text","text":"one"},{"type":"thinking","thinking":"two"},` +
			`{"type":"tool_use","id":"t1","name":"bash","input":{"command":"ls"}}],"usage":{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":3,"cache_creation_input_tokens":4}}`,
		`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"","is_error":true}]}`,
		`{"type":"assistant","isApiErrorMessage":true,"error":"again"`,
		`{"type":"assistant","message":{"role":"assistant","model":"p/m","content":[{"type":"text","text":"no usage came"}]}`,
		`{"type":"assistant","message":{"role":"assistant","model":"p/m","content":[{"type":"tool_use","id":"t2","name":"read","input":{}}]}`,
		`{"type":"system","subtype":"warning","content":"careful"`,
		`{"type":"system","subtype":"stderr","content":"noise"`,
		`{"type":"assistant","isApiErrorMessage":true,"error":"bad key"`,
		`{"type":"result","subtype":"error_agent","is_error":true,"result":"","num_turns":2,"total_cost_usd":0.5,"total_input_tokens":1,"total_output_tokens":2,` +
			`"total_cache_read_input_tokens":3,"total_cache_creation_input_tokens":4,"duration_ms":5`,
	}
	if got := strings.Join(want, at+"\n") + at + "\n"; got != string(text) {
		t.Errorf("got\n%s\nwant\n%s", text, got)
	}
}

func TestNames(t *testing.T) {
	long := "/" + strings.Repeat("d/", 200)
	for _, tc := range []struct {
		name, cwd, session string
		path               string // below projects
	}{
		{"a good session", "/a/b", "0199-x_y.z", "-a-b/0199-x_y.z.jsonl"},
		{"no session", "/a", "", "-a/01EXECUTION.jsonl"},
		{"a path for a session", "/a", "../../etc/cron", "-a/01EXECUTION.jsonl"},
		{"dots for a session", "/a", "..", "-a/01EXECUTION.jsonl"},
		{"a NUL", "/a", "s\x00", "-a/01EXECUTION.jsonl"},
		{"too long a session", "/a", strings.Repeat("s", 129), "-a/01EXECUTION.jsonl"},
		{"the root", "/", "s", "-/s.jsonl"},
		{"dots for a directory", "..", "s", "-../s.jsonl"},
		{"no directory", "", "s", "-/s.jsonl"},
		{"a long directory", long, "s", slug(long) + "/s.jsonl"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir, tc.cwd)
			if tc.session != "" {
				l.Event(api.Event{Type: api.EventSession, SessionID: tc.session})
			}
			l.Event(api.Event{Type: api.EventWarning, Text: "x"})
			// A session that comes too late changes nothing.
			l.Event(api.Event{Type: api.EventSession, SessionID: "late"})
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if path, _ := read(t, dir); path != "projects/"+tc.path {
				t.Errorf("logged to %s, want projects/%s", path, tc.path)
			}
		})
	}
	if other := slug(long + "x"); len(slug(long)) > maxSlug || other == slug(long) {
		t.Errorf("long directories: %q and %q", slug(long), other)
	}
}

func TestModes(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	dir := t.TempDir()
	l := open(t, dir, "/a")
	if err := l.Result(api.Result{StopReason: "success"}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	for path, want := range map[string]fs.FileMode{"projects": fs.ModeDir | 0o750, "projects/-a": fs.ModeDir | 0o750, "projects/-a/01EXECUTION.jsonl": 0o640} {
		info, err := os.Lstat(dir + "/" + path)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// TestTaken is about an agent that names the session of another run.
func TestTaken(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir, "/a")
	first.Event(api.Event{Type: api.EventSession, SessionID: "mine"})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(dir + "/projects/-a/mine.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	second := open(t, dir, "/a")
	second.Event(api.Event{Type: api.EventSession, SessionID: "mine"})
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	after, _ := os.ReadFile(dir + "/projects/-a/mine.jsonl")
	if !bytes.Equal(before, after) {
		t.Error("the first run's log has changed")
	}
	if _, err := os.Stat(dir + "/projects/-a/01EXECUTION.jsonl"); err != nil {
		t.Errorf("the second run's log: %v", err)
	}
	third := open(t, dir, "/a")
	third.Event(api.Event{Type: api.EventSession, SessionID: "mine"})
	if err := third.Close(); err == nil {
		t.Error("a third run with the same execution wrote somewhere")
	}
}

// TestLinks is about links that somebody planted in the sessions directory.
func TestLinks(t *testing.T) {
	for _, link := range []string{"projects", "projects/-a", "projects/-a/s.jsonl"} {
		t.Run(link, func(t *testing.T) {
			dir, outside := t.TempDir(), t.TempDir()
			target := outside
			if strings.HasSuffix(link, ".jsonl") {
				target += "/victim"
				if err := os.WriteFile(target, []byte("precious"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.MkdirAll(filepath.Dir(dir+"/"+link), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, dir+"/"+link); err != nil {
				t.Fatal(err)
			}
			l := open(t, dir, "/a")
			l.Event(api.Event{Type: api.EventSession, SessionID: "s"})
			err := l.Close()
			if planted := strings.HasSuffix(link, ".jsonl"); planted != (err == nil) {
				t.Errorf("error %v; a link in place of the file is stepped around, one in place of a directory is refused", err)
			}
			filepath.WalkDir(outside, func(path string, d fs.DirEntry, _ error) error {
				if path != outside && path != target {
					t.Errorf("wrote %s outside", path)
				}
				return nil
			})
			if text, _ := os.ReadFile(target); target != outside && string(text) != "precious" {
				t.Errorf("the victim now says %q", text)
			}
		})
	}
}

func TestErrorsStay(t *testing.T) {
	l := open(t, t.TempDir()+"/missing", "/a")
	l.Prompt("x")
	first := l.Event(api.Event{Type: api.EventWarning, Text: "x"})
	if first == nil {
		t.Fatal("no error for a directory that is missing")
	}
	if err := l.Result(api.Result{}); err != first {
		t.Errorf("the second error is %v, want the first again", err)
	}
	if err := l.Close(); err != first {
		t.Errorf("Close returns %v", err)
	}
}
