package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/backend"
)

// input is a request that every check lets pass, for the agent pi.
func input(edit func(*agent.Input)) agent.Input {
	in := agent.Input{
		Prompt: "do it",
		Config: api.Config{Model: "anthropic/claude-sonnet-4-6"},
		Keys:   map[string]bool{"ANTHROPIC_API_KEY": true},
	}
	if edit != nil {
		edit(&in)
	}
	return in
}

// lookup finds an adapter by its name; "" means the default one.
func lookup(t *testing.T, name string) agent.Adapter {
	t.Helper()
	for _, a := range agent.All() {
		if name == "" || a.Name == name {
			return a
		}
	}
	t.Fatalf("no adapter %q", name)
	return agent.Adapter{}
}

func TestNames(t *testing.T) {
	var names []string
	for _, a := range agent.All() {
		names = append(names, a.Name)
	}
	if got := strings.Join(names, " "); got != "pi agentic-pi command" {
		t.Errorf("names %q", got)
	}
}

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name   string
		agent  string
		edit   func(*agent.Input)
		status int // 0: passes
		field  string
		want   string
	}{
		{"good", "pi", nil, 0, "", ""},
		{"good, agentic", "agentic-pi", nil, 0, "", ""},
		{"every variant", "pi", func(in *agent.Input) { in.Config.Variant = "xhigh" }, 0, "", ""},
		{"another provider", "pi", func(in *agent.Input) {
			in.Config.Model, in.Keys = "openrouter/anthropic/claude-sonnet-4.6", map[string]bool{"OPENROUTER_API_KEY": true}
		}, 0, "", ""},
		{"the provider's other key", "pi", func(in *agent.Input) { in.Keys = map[string]bool{"ANTHROPIC_OAUTH_TOKEN": true} }, 0, "", ""},
		{"no prompt", "pi", func(in *agent.Input) { in.Prompt = " \n" }, 400, "prompt", "empty"},
		{"no model", "pi", func(in *agent.Input) { in.Config.Model = "" }, 400, "config.model", "provider/model"},
		{"a model alone", "pi", func(in *agent.Input) { in.Config.Model = "claude-sonnet-4-6" }, 400, "config.model", "anthropic/claude-sonnet-4-6"},
		{"a flag for a model", "pi", func(in *agent.Input) { in.Config.Model = "anthropic/--help me" }, 400, "config.model", "provider/model"},
		{"a misspelt provider", "pi", func(in *agent.Input) { in.Config.Model = "antropic/claude-sonnet-4-6" }, 422, "config.model", "did you mean anthropic?"},
		{"an unknown provider", "agentic-pi", func(in *agent.Input) { in.Config.Model = "acme/x" }, 422, "config.model", "unknown"},
		{"a misspelt model", "pi", func(in *agent.Input) { in.Config.Model = "anthropic/claude-sonnet-4.6" }, 422, "config.model", "did you mean anthropic/claude-sonnet-4-6"},
		{"a model of nobody's", "pi", func(in *agent.Input) { in.Config.Model = "anthropic/zzz" }, 422, "config.model", "no such model"},
		{"a model in other case", "pi", func(in *agent.Input) { in.Config.Model = "anthropic/Claude-Sonnet-4-6" }, 422, "config.model", "did you mean anthropic/claude-sonnet-4-6"},
		{"a pattern", "pi", func(in *agent.Input) { in.Config.Model = "anthropic/sonnet" }, 422, "config.model", "no such model"},
		{"a thinking suffix", "pi", func(in *agent.Input) { in.Config.Model = "anthropic/claude-sonnet-4-6:high" }, 422, "config.model", "no such model"},
		{"no key", "pi", func(in *agent.Input) { in.Keys = map[string]bool{"OPENAI_API_KEY": true} }, 422, "config.model", "ANTHROPIC_API_KEY is missing"},
		{"no key, agentic", "agentic-pi", func(in *agent.Input) { in.Keys = nil }, 422, "config.model", "ANTHROPIC_API_KEY is missing"},
		{"a bad variant", "pi", func(in *agent.Input) { in.Config.Variant = "hihg" }, 422, "config.variant", "did you mean high"},
		{"argv", "pi", func(in *agent.Input) { in.Config.Argv = []string{"ls"} }, 422, "config.argv", "for the agent command"},
		{"search without a key", "agentic-pi", func(in *agent.Input) { in.Config.WebSearch = true }, 422, "config.webSearch", "TAVILY_API_KEY"},
		{"search with an unknown provider", "agentic-pi", func(in *agent.Input) { in.Config.WebSearch, in.Config.WebSearchProvider = true, "tavilly" }, 422, "config.webSearchProvider", "did you mean tavily"},
		{"search with a provider without key", "agentic-pi", func(in *agent.Input) {
			in.Config.WebSearch, in.Config.WebSearchProvider, in.Keys["TAVILY_API_KEY"] = true, "exa", true
		}, 422, "config.webSearchProvider", "EXA_API_KEY is missing"},
		{"a search provider without search", "pi", func(in *agent.Input) { in.Config.WebSearchProvider = "exa" }, 422, "config.webSearchProvider", "config.webSearch is not"},
		{"search", "agentic-pi", func(in *agent.Input) { in.Config.WebSearch, in.Keys["EXA_API_KEY"] = true, true }, 0, "", ""},
		{"search of an agent without a tool", "pi", func(in *agent.Input) { in.Config.WebSearch, in.Keys["EXA_API_KEY"] = true, true }, 422, "config.webSearch", "pi has no tool for it"},
		{"command", "command", func(in *agent.Input) { in.Config.Argv = []string{"true"} }, 0, "", ""},
		{"command without a model or key", "command", func(in *agent.Input) {
			*in = agent.Input{Config: api.Config{Argv: []string{"true", ""}}}
		}, 0, "", ""},
		{"command without argv", "command", nil, 422, "config.argv", "bash"},
		{"command with an empty program", "command", func(in *agent.Input) { in.Config.Argv = []string{""} }, 422, "config.argv", "missing"},
		{"command with a NUL", "command", func(in *agent.Input) { in.Config.Argv = []string{"a", "b\x00c"} }, 422, "config.argv", "NUL"},
		{"command with a huge argv", "command", func(in *agent.Input) { in.Config.Argv = []string{strings.Repeat("x", 1<<20)} }, 422, "config.argv", "131072"},
		{"command with search without a key", "command", func(in *agent.Input) { in.Config.Argv, in.Config.WebSearch = []string{"true"}, true }, 422, "config.webSearch", "key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := lookup(t, tc.agent).Check(input(tc.edit))
			if tc.status == 0 {
				if p != nil {
					t.Fatalf("refused: %+v", p)
				}
				return
			}
			if p == nil {
				t.Fatal("passed")
			}
			if p.Status != tc.status || (p.Code != api.CodeInvalidRequest) != (p.Details["requestedCapability"] != nil) || p.Details["field"] != tc.field || !strings.Contains(p.Detail, tc.want) {
				t.Errorf("got %d %s %v %q, want %d %s %q", p.Status, p.Code, p.Details, p.Detail, tc.status, tc.field, tc.want)
			}
			if strings.Contains(fmt.Sprint(p), "sk-a") {
				t.Errorf("the problem holds a key: %v", p)
			}
		})
	}
}

// TestJobs compares whole jobs, environment and all: nothing may slip in.
func TestJobs(t *testing.T) {
	base := []string{
		"GITHUB_APP_PRIVATE_KEY_PATH=",
		"GIT_AUTHOR_EMAIL=agent@sallyport.invalid",
		"GIT_AUTHOR_NAME=sallyport agent",
		"GIT_COMMITTER_EMAIL=agent@sallyport.invalid",
		"GIT_COMMITTER_NAME=sallyport agent",
		"GIT_TERMINAL_PROMPT=0",
		"HOME=" + backend.HomeDir,
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		"LOGNAME=agent",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"PIP_RETRIES=1",
		"SHELL=/bin/bash",
		"TERM=dumb",
		"TMPDIR=/tmp",
		"USER=agent",
		"npm_config_fetch_retry_maxtimeout=2000",
		"npm_config_fetch_retry_mintimeout=500",
		"npm_config_update_notifier=false",
	}
	pi := []string{"PI_OFFLINE=1", "PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0"}
	ca := []string{
		"AWS_CA_BUNDLE=" + wire.CABundlePath, "CURL_CA_BUNDLE=" + wire.CABundlePath, "GIT_SSL_CAINFO=" + wire.CABundlePath,
		"NODE_EXTRA_CA_CERTS=" + wire.CABundlePath, "PIP_CERT=" + wire.CABundlePath,
		"REQUESTS_CA_BUNDLE=" + wire.CABundlePath, "SSL_CERT_FILE=" + wire.CABundlePath,
	}
	all := func(in *agent.Input) {
		in.Keys = map[string]bool{"ANTHROPIC_API_KEY": true, "OPENAI_API_KEY": true, "GROQ_API_KEY": false,
			"TAVILY_API_KEY": true, "EXA_API_KEY": true, "BRAVE_SEARCH_API_KEY": true, "HOME": true, "LD_PRELOAD": true}
	}
	piArgv := []string{"pi", "--print", "--mode", "json", "--no-session", "--offline", "--no-approve", "--no-extensions",
		"--provider", "anthropic", "--model", "claude-sonnet-4-6"}
	for _, tc := range []struct {
		name  string
		agent string
		edit  func(*agent.Input)
		argv  []string
		env   []string // beside base
	}{
		{"pi", "pi", nil, piArgv, append(pi, "ANTHROPIC_API_KEY=sk-a")},
		{"pi with a variant and a context", "pi", func(in *agent.Input) { in.Config.Variant, in.Context = "high", "Be brief.\n" },
			append(slices.Clone(piArgv), "--thinking", "high"), append(pi, "ANTHROPIC_API_KEY=sk-a")},
		{"pi with an extra CA", "pi", func(in *agent.Input) { in.ExtraCA = []byte("PEM") }, piArgv, slices.Concat(pi, ca, []string{"ANTHROPIC_API_KEY=sk-a"})},
		{"all keys, no search", "pi", all, piArgv, append(pi, "ANTHROPIC_API_KEY=sk-a", "OPENAI_API_KEY=sk-o")},
		{"all keys, search", "agentic-pi", func(in *agent.Input) { all(in); in.Config.WebSearch = true },
			[]string{"agentic-pi", "run", "--model", "anthropic/claude-sonnet-4-6", "--sandbox", "none", "--web-search-provider", "tavily"},
			[]string{"ANTHROPIC_API_KEY=sk-a", "OPENAI_API_KEY=sk-o", "TAVILY_API_KEY=t"}},
		{"no tavily", "agentic-pi", func(in *agent.Input) { all(in); in.Config.WebSearch = true; delete(in.Keys, "TAVILY_API_KEY") },
			[]string{"agentic-pi", "run", "--model", "anthropic/claude-sonnet-4-6", "--sandbox", "none", "--web-search-provider", "exa"},
			[]string{"ANTHROPIC_API_KEY=sk-a", "OPENAI_API_KEY=sk-o", "EXA_API_KEY=e"}},
		{"agentic-pi", "agentic-pi", func(in *agent.Input) { in.Context = "c" },
			[]string{"agentic-pi", "run", "--model", "anthropic/claude-sonnet-4-6", "--sandbox", "none", "--no-web-search"},
			[]string{"ANTHROPIC_API_KEY=sk-a"}},
		{"agentic-pi that searches with brave", "agentic-pi", func(in *agent.Input) {
			all(in)
			in.Config.WebSearch, in.Config.WebSearchProvider, in.Config.Variant = true, "brave", "off"
		}, []string{"agentic-pi", "run", "--model", "anthropic/claude-sonnet-4-6", "--sandbox", "none", "--thinking", "off", "--web-search-provider", "brave"},
			[]string{"ANTHROPIC_API_KEY=sk-a", "OPENAI_API_KEY=sk-o", "BRAVE_SEARCH_API_KEY=b"}},
		{"command", "command", func(in *agent.Input) { in.Config.Argv = []string{"bash", "-c", "env"} },
			[]string{"bash", "-c", "env"}, []string{"ANTHROPIC_API_KEY=sk-a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := input(tc.edit)
			values := map[string]string{"ANTHROPIC_API_KEY": "sk-a", "OPENAI_API_KEY": "sk-o", "TAVILY_API_KEY": "t", "EXA_API_KEY": "e", "BRAVE_SEARCH_API_KEY": "b"}
			for _, s := range agent.KeySecrets(in) {
				s.Value = values[s.Name]
				in.Secrets = append(in.Secrets, s)
			}
			job := lookup(t, tc.agent).Command(in)
			if !slices.Equal(job.Argv, tc.argv) {
				t.Errorf("argv %q, want %q", job.Argv, tc.argv)
			}
			want := slices.Concat(base, tc.env)
			slices.Sort(want)
			got := slices.Clone(job.Env)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("environment\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if job.Dir != backend.WorkspaceDir || !bytes.Equal(job.ExtraCA, in.ExtraCA) {
				t.Errorf("directory %s, extra CA %q", job.Dir, job.ExtraCA)
			}
			where := backend.HomeDir + "/AGENTS.md"
			if tc.agent != "command" { // agentic-pi reads what its base reads
				where = backend.HomeDir + "/.pi/agent/AGENTS.md"
			}
			if len(job.Files) != 1 || job.Files[0].Path != where {
				t.Fatalf("files %+v, want %q alone", job.Files, where)
			}
			if text := string(job.Files[0].Content); !strings.HasPrefix(text, in.Context) || !strings.Contains(text, "http://policy.sallyport.internal/why?host=") {
				t.Errorf("%s: %q", where, text)
			}
		})
	}
}

func TestModels(t *testing.T) {
	models := agent.Models()
	if len(models) < 500 || !slices.IsSorted(models) || len(slices.Compact(slices.Clone(models))) != len(models) {
		t.Errorf("%d models, sorted %v", len(models), slices.IsSorted(models))
	}
	for _, m := range models {
		in := input(func(in *agent.Input) {
			in.Config.Model, in.Keys = m, map[string]bool{}
			for _, k := range agent.ProviderKeys() {
				in.Keys[k] = true
			}
		})
		if p := lookup(t, "pi").Check(in); p != nil {
			t.Errorf("%s: %v", m, p)
		}
	}
	for _, k := range append(agent.ProviderKeys(), agent.SearchKeys()...) {
		if !strings.HasSuffix(k, "_API_KEY") && !strings.HasSuffix(k, "_TOKEN") {
			t.Errorf("the variable %q is no key's", k)
		}
	}
}

// TestSecretsOfAJob: the agent's job has a secret in the variable, or in a file whose path
// the variable has; the checkout before it has none.
func TestSecretsOfAJob(t *testing.T) {
	in := input(func(in *agent.Input) {
		in.Config.Argv = []string{"true"}
		in.Secrets = []agent.Secret{{Name: "a", Variable: "A", Value: "value-of-a"}, {Name: "b", Variable: "B_FILE", File: true, Value: "value-of-b\n"}}
	})
	job := lookup(t, "command").Command(in)
	if !slices.Contains(job.Env, "A=value-of-a") || !slices.Contains(job.Env, "B_FILE=/run/sallyport/secrets/b") || strings.Contains(fmt.Sprint(job.Env), "value-of-b") {
		t.Errorf("environment %q", job.Env)
	}
	if f := job.Files[len(job.Files)-1]; f.Path != "/run/sallyport/secrets/b" || f.Mode != 0o400 || string(f.Content) != "value-of-b\n" || len(job.Files) != 2 {
		t.Errorf("files %+v", job.Files)
	}
	if data, err := json.Marshal(agent.Checkout(in)); err != nil || bytes.Contains(data, []byte("A=")) || bytes.Contains(data, []byte("secrets/b")) {
		t.Errorf("the checkout has %s, %v", data, err)
	}
}

// TestCommandRuns runs real programs.
func TestCommandRuns(t *testing.T) {
	for _, tc := range []struct {
		script string
		output string
		stop   string
		code   any // details.exitCode
	}{
		{`cat; echo -n " done"`, "do it done", "success", nil},
		{`true`, "", "success", nil},
		{`printf '\377x'`, "\uFFFDx", "success", nil},
		{`echo half; exit 3`, "half\n", "error_exit_3", 3},
	} {
		in := input(func(in *agent.Input) { in.Config.Argv = []string{"bash", "-c", tc.script} })
		a := lookup(t, "command")
		job := a.Command(in)
		c := exec.Command(job.Argv[0], job.Argv[1:]...)
		c.Env, c.Stdin = job.Env, strings.NewReader(in.Prompt)
		out, err := c.Output()
		exit := wire.Exit{Code: c.ProcessState.ExitCode()}
		if err != nil && exit.Code <= 0 {
			t.Fatal(err)
		}
		p := a.NewParser(in)
		events := p.Stdout(out)
		o := p.Finish(exit)
		if o.Output != tc.output || o.StopReason != tc.stop {
			t.Errorf("%s: %q %s, want %q %s", tc.script, o.Output, o.StopReason, tc.output, tc.stop)
		}
		if tc.code == nil && o.Err != nil || tc.code != nil && (o.Err == nil || o.Err.Code != api.CodeCommandFailed || o.Err.Details["exitCode"] != tc.code) {
			t.Errorf("%s: %+v, want exit code %v", tc.script, o.Err, tc.code)
		}
		var said string
		for _, e := range append(events, o.Events...) {
			if e.Type != api.EventOutput {
				t.Errorf("%s: event %s", tc.script, e.Type)
			}
			said += e.Text
		}
		if said != tc.output {
			t.Errorf("%s: the events say %q", tc.script, said)
		}
	}
}

func TestCommandEnds(t *testing.T) {
	for _, tc := range []struct {
		exit wire.Exit
		stop string
		code int
	}{
		{wire.Exit{Code: -1, Signal: "KILL"}, "error_exit_137", 137},
		{wire.Exit{Code: -1, Signal: "SEGV"}, "error_exit_139", 139},
		{wire.Exit{Code: -1, Signal: "34"}, "error_exit_162", 162},
		{wire.Exit{Code: -1, Error: "exec nope: no such file"}, "error_sandbox", -1},
		{wire.Exit{Code: 127}, "error_exit_127", 127},
	} {
		o := lookup(t, "command").NewParser(agent.Input{}).Finish(tc.exit)
		if o.StopReason != tc.stop || o.Err == nil || o.Err.Details["exitCode"] != tc.code || !strings.Contains(o.Err.Message, tc.exit.Error) {
			t.Errorf("%+v: %s %+v", tc.exit, o.StopReason, o.Err)
		}
	}
}

func TestCommandOutputIsBounded(t *testing.T) {
	p := lookup(t, "command").NewParser(agent.Input{})
	for range 64 {
		for _, e := range p.Stdout(bytes.Repeat([]byte("日本"), 20000)) {
			if len(e.Text) > 64<<10 {
				t.Fatalf("an event of %d bytes", len(e.Text))
			}
		}
	}
	o := p.Finish(wire.Exit{})
	if len(o.Output) > 1<<20 || len(o.Output) < 1<<20-4 || !o.OutputTruncated || strings.Contains(o.Output, "\uFFFD") {
		t.Errorf("%d bytes of output, truncated %v", len(o.Output), o.OutputTruncated)
	}
}

func FuzzCommandOutput(f *testing.F) {
	f.Add([]byte("h\xc3\xa9\xe6\x97\xa5\xf0\x9f\x9a\xaa\xff"), 2)
	f.Fuzz(func(t *testing.T, p []byte, at int) {
		at = min(max(at, 0), len(p))
		want := strings.ToValidUTF8(string(p), "\uFFFD")
		parser := agent.Command{}.NewParser(agent.Input{})
		var got strings.Builder
		for _, piece := range [][]byte{p[:at], p[at:]} {
			for _, e := range parser.Stdout(piece) {
				got.WriteString(e.Text)
			}
		}
		o := parser.Finish(wire.Exit{})
		for _, e := range o.Events {
			got.WriteString(e.Text)
		}
		// A run of bad bytes becomes one mark, two where it was cut.
		once := func(s string) string {
			for strings.Contains(s, "\uFFFD\uFFFD") {
				s = strings.ReplaceAll(s, "\uFFFD\uFFFD", "\uFFFD")
			}
			return s
		}
		if once(got.String()) != once(want) {
			t.Fatalf("cut at %d the events say %q, want %q", at, got.String(), want)
		}
		if o.Output != got.String() && !o.OutputTruncated {
			t.Fatalf("the output is %q, the events say %q", o.Output, got.String())
		}
	})
}

// TestListModels is about the script that makes models.txt: it must ask pi for every
// provider and pass nothing but placeholders.
func TestListModels(t *testing.T) {
	dir := t.TempDir()
	fake := `#!/bin/sh
case $1 in --version) echo 9.9.9; exit ;; esac
echo "provider  model"
env | grep -E '_API_KEY|_TOKEN' | LC_ALL=C sort | sed 's/=/ /'
`
	if err := os.WriteFile(dir+"/pi", []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "list-models.sh")
	c.Env = []string{"PATH=" + dir + ":/usr/bin:/bin", "TMPDIR=" + dir}
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "# The models of pi 9.9.9, made by list-models.sh.\n"
	for _, k := range agent.ProviderKeys() {
		want += k + "/none\n"
	}
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}
