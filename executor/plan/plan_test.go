package plan_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
)

// agentUID is the user that the service runs agents as in these tests: one who
// can own what a test makes.
func agentUID() int {
	if uid := os.Getuid(); uid != 0 {
		return uid
	}
	return 10001
}

func service(roots ...string) *plan.Service {
	return &plan.Service{
		Roots:    roots,
		Sessions: "/state/sessions",
		Agents:   agent.All(),
		Backends: []string{"docker"},
		Images:   []string{"agent:one", "agent:two"},
		Tiers: []plan.Tier{
			{Name: "standard", Limits: plan.Limits{Limits: backend.Limits{MemoryBytes: 2 << 30, PIDs: 512, CPUs: 2}}},
			{Name: "small", Limits: plan.Limits{Limits: backend.Limits{MemoryBytes: 1 << 30, PIDs: 64, CPUs: 0.5}}},
		},
		UID:            agentUID(),
		DefaultTimeout: time.Minute,
		MaxTimeout:     time.Hour,
		Keys:           map[string]bool{"ANTHROPIC_API_KEY": true, "EXA_API_KEY": true},
		Secrets:        []agent.Secret{{Name: "release", Variable: "RELEASE_TOKEN"}},
	}
}

var policies = []string{"lax", "open", "strict"}

func request(change func(*api.Config)) api.Request {
	req := api.Request{Prompt: "p", Config: api.Config{Agent: "command", Argv: []string{"true"}}}
	if change != nil {
		change(&req.Config)
	}
	return req
}

func TestJudge(t *testing.T) {
	p, problem := service().Judge(caller.Operator(), request(nil), policies)
	if problem != nil {
		t.Fatal(problem)
	}
	if p.Policy != "strict" || p.Limits.WallClock != time.Minute || p.Image != "agent:one" || p.Tier.Name != "standard" || p.Dir != "" ||
		p.UID != agentUID() || p.GID != agentUID() || p.SessionsDir != "/state/sessions" || p.Adapter.Name != "command" {
		t.Errorf("plan = %+v", p)
	}
	if p.Input.Prompt != "p" || fmt.Sprint(p.Input.Secrets) != "[{ANTHROPIC_API_KEY ANTHROPIC_API_KEY false } {release RELEASE_TOKEN false }]" {
		t.Errorf("input = %+v", p.Input)
	}
	p, problem = service().Judge(caller.Operator(), request(func(c *api.Config) {
		c.Egress, c.SandboxImage, c.Tier, c.TimeoutMS, c.WebSearch, c.Artifacts = "lax", "agent:two", "small", 1000, true, []string{"**/*.{md,txt}"}
	}), policies)
	if problem != nil {
		t.Fatal(problem)
	}
	if p.Policy != "lax" || p.Image != "agent:two" || p.Limits.PIDs != 64 || p.Limits.WallClock != time.Second || len(p.Input.Secrets) != 3 || p.Input.Secrets[1].Name != "EXA_API_KEY" || len(p.Artifacts) != 1 {
		t.Errorf("plan = %+v", p)
	}
	p, problem = service().Judge(caller.Operator(), request(func(c *api.Config) { c.UnrestrictedEgress, c.Egress = true, "open" }), policies)
	if problem != nil || p.Policy != "open" {
		t.Errorf("open by both names: %+v, %v", p, problem)
	}
	if _, problem = service().Judge(caller.Operator(), request(nil), []string{"open"}); problem == nil || problem.Details["field"] != "config.egress" {
		t.Errorf("an allowlist without strict: %v", problem)
	}
	if _, problem = (&plan.Service{Backends: []string{"docker"}, Images: []string{"i"}, Tiers: []plan.Tier{{}}, Agents: agent.All()}).Judge(caller.Operator(), request(func(c *api.Config) { c.CWD = "/" }), policies); problem == nil {
		t.Error("a service without roots takes a path")
	}
}

// TestJudgeSecrets: a secret takes the place of nothing that a run has already.
func TestJudgeSecrets(t *testing.T) {
	for name, test := range map[string]struct {
		second string // variable of a second secret
		github bool
		taken  bool
	}{
		"its own": {"OTHER_TOKEN", true, false}, "GitHub's": {"GH_TOKEN", true, true}, "GitHub's, not had": {"GH_TOKEN", false, false},
		"a key's": {"ANTHROPIC_API_KEY", false, true}, "another secret's": {"RELEASE_TOKEN", false, true}, "the path": {"PATH", false, true},
	} {
		s, req := service(), request(nil)
		if test.github {
			s, req = gitHubService(false), gitHubRequest(func(*api.GithubAccess) {})
		}
		s.Secrets = append(s.Secrets, agent.Secret{Name: "second", Variable: test.second, File: true})
		p, problem := s.Judge(caller.Operator(), req, policies)
		if !test.taken && (problem != nil || len(p.Input.Secrets) != 3) {
			t.Errorf("%s: %v", name, problem)
		}
		if test.taken && (problem == nil || problem.Details["field"] != "opts.security.secrets" || !strings.Contains(problem.Detail, "the secret second goes into the variable "+test.second)) {
			t.Errorf("%s: %v", name, problem)
		}
	}
}

func TestMostSecrets(t *testing.T) {
	s := service()
	for len(s.Secrets) < 16 {
		s.Secrets = append(s.Secrets, agent.Secret{Name: "x", Variable: fmt.Sprint("X", len(s.Secrets))})
	}
	if _, problem := s.Judge(caller.Operator(), request(nil), policies); problem != nil {
		t.Errorf("as many as may be: %v", problem)
	}
	s.Secrets = append(s.Secrets, agent.Secret{Name: "x", Variable: "X"})
	if _, problem := s.Judge(caller.Operator(), request(nil), policies); problem == nil || !strings.Contains(problem.Detail, "names 17 secrets; it may name 16") {
		t.Errorf("one more: %v", problem)
	}
}

func TestDefaultAgent(t *testing.T) {
	p, problem := service().Judge(caller.Operator(), api.Request{Prompt: "p", Config: api.Config{Model: agent.Models()[0]}}, policies)
	if problem != nil && problem.Details["missing"] == nil || problem == nil && p.Adapter.Name != "pi" {
		t.Errorf("plan %+v, problem %v", p, problem)
	}
}

// A model that is not named is the operator's default, where there is one, and none of
// a command's.
func TestDefaultModel(t *testing.T) {
	const model = "anthropic/claude-sonnet-4-6"
	s := service()
	s.Keys = map[string]bool{"ANTHROPIC_API_KEY": true}
	if _, problem := s.Judge(caller.Operator(), api.Request{Prompt: "p"}, policies); problem == nil || problem.Details["field"] != "config.model" || !strings.Contains(problem.Detail, "no default") {
		t.Errorf("without a default: %v", problem)
	}
	s.Model = model
	for name, config := range map[string]api.Config{
		model:                        {},
		"anthropic/claude-haiku-4-5": {Model: "anthropic/claude-haiku-4-5"},
		"":                           {Agent: "command", Argv: []string{"true"}},
	} {
		p, problem := s.Judge(caller.Operator(), api.Request{Prompt: "p", Config: config}, policies)
		if problem != nil || p.Request.Config.Model != name || p.Input.Config.Model != name {
			t.Errorf("%+v: %+v, %v", config, p, problem)
		}
	}
}

// mkdir makes a directory that belongs to the given user, where the test may
// give it away.
func mkdir(t *testing.T, uid int, elem ...string) string {
	t.Helper()
	dir := filepath.Join(elem...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestWorkspace(t *testing.T) {
	uid := agentUID()
	base := t.TempDir()
	root := mkdir(t, uid, base, "root")
	project := mkdir(t, uid, root, "project")
	outside := mkdir(t, uid, base, "outside")
	rootlike := mkdir(t, uid, base, "rootlike")
	state := mkdir(t, uid, root, "state", "executions")
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"in": project, "out": outside, "loop": filepath.Join(root, "loop")} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	byLink := filepath.Join(base, "link") // a way to the root from elsewhere
	if err := os.Symlink(root, byLink); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, cwd, dir, detail string }{
		{"a directory", project, project, ""},
		{"the root itself holds private directories", root, "", "executor's own"},
		{"a link that stays within", root + "/in", project, ""},
		{"a link that leads out", root + "/out", "", "does not lie under"},
		{"a link that leads to itself", root + "/loop", "", "does not exist"},
		{"a way from outside into the root", byLink + "/project", project, ""},
		{"a sibling with the root's name at its beginning", rootlike, "", "does not lie under"},
		{"outside", outside, "", "does not lie under"},
		{"outside and absent", base + "/nothing", "", "does not lie under"},
		{"a file", file, "", "not a directory"},
		{"absent", root + "/absent", "", "does not exist"},
		{"dots", root + "/project/../project", "", "shortest form"},
		{"a slash at the end", project + "/", "", "shortest form"},
		{"a NUL", project + "\x00", "", "shortest form"},
		{"private", state, "", "executor's own"},
		{"above private", root + "/state", "", "executor's own"},
	} {
		s := service(root)
		s.Private = []string{state}
		p, problem := s.Judge(caller.Operator(), request(func(c *api.Config) { c.CWD = tt.cwd }), policies)
		switch {
		case tt.detail == "" && problem != nil:
			t.Errorf("%s: %v", tt.name, problem)
		case tt.detail == "" && (p.Dir != tt.dir || p.UID != uid || p.GID == 0):
			t.Errorf("%s: directory %s for %d:%d", tt.name, p.Dir, p.UID, p.GID)
		case tt.detail != "" && (problem == nil || problem.Status != 422 || problem.Details["field"] != "config.cwd" || !strings.Contains(problem.Detail, tt.detail)):
			t.Errorf("%s: %v, want %q", tt.name, problem, tt.detail)
		}
	}
}

// TestOwner checks as whom a sandbox runs in a directory, and that one of root's
// is refused with the way to mend it.
func TestOwner(t *testing.T) {
	_, problem := service("/usr").Judge(caller.Operator(), request(func(c *api.Config) { c.CWD = "/usr/lib" }), policies)
	if problem == nil || problem.Status != 422 || !strings.Contains(problem.Detail, "chown -R ") {
		t.Errorf("a directory of root's: %v", problem)
	}
	if os.Getuid() != 0 {
		return // nobody else can give directories away
	}
	root := t.TempDir()
	for _, tt := range []struct {
		name             string
		uid, gid         int
		mode             os.FileMode
		wantUID, wantGID int // 0 where it is refused
	}{
		{"the agent's", 10001, 10001, 0o700, 10001, 10001},
		{"another user's", 1234, 5678, 0o755, 1234, 5678},
		{"another user's with root's group", 1234, 0, 0o755, 1234, 10001},
		{"root's", 0, 0, 0o755, 0, 0},
		{"root's, writable for all", 0, 0, 0o777, 10001, 10001},
		{"root's, writable for the agent's group", 0, 10001, 0o775, 10001, 10001},
		{"root's, writable for another group", 0, 99, 0o775, 0, 0},
	} {
		dir := filepath.Join(root, tt.name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, tt.uid, tt.gid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, tt.mode); err != nil {
			t.Fatal(err)
		}
		p, problem := service(root).Judge(caller.Operator(), request(func(c *api.Config) { c.CWD = dir }), policies)
		if tt.wantUID == 0 {
			if problem == nil {
				t.Errorf("%s: not refused", tt.name)
			}
			continue
		}
		if problem != nil || p.UID != tt.wantUID || p.GID != tt.wantGID {
			t.Errorf("%s: %+v, %v", tt.name, p, problem)
		}
	}
}

func TestSessionsDir(t *testing.T) {
	uid := agentUID()
	root := mkdir(t, uid, t.TempDir(), "root")
	project, sessions := mkdir(t, uid, root, "project"), mkdir(t, uid, root, "sessions")
	within, state := mkdir(t, uid, project, "sessions"), mkdir(t, uid, root, "state")
	s := service(root)
	s.Private = []string{state}
	for _, tt := range []struct {
		cwd, dir string
		ok       bool
	}{
		{"", sessions, true},
		{project, sessions, true},
		{project, within, false},
		{project, root, false},
		{"", state, false},
		{"", "/etc", false},
	} {
		p, problem := s.Judge(caller.Operator(), request(func(c *api.Config) { c.CWD, c.SessionsDir = tt.cwd, tt.dir }), policies)
		if tt.ok != (problem == nil) || tt.ok && p.SessionsDir != tt.dir || !tt.ok && problem.Details["field"] != "config.sessionsDir" {
			t.Errorf("cwd %q, sessionsDir %q: %+v, %v", tt.cwd, tt.dir, p, problem)
		}
	}
}

func TestContext(t *testing.T) {
	root := t.TempDir()
	dir := mkdir(t, agentUID(), root, "context")
	for name, size := range map[string]int{"a.md": 10, "b.md": 10, "ignored.txt": 1 << 21} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Repeat(name[:1], size)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	judge := func() (*plan.Plan, *api.Problem) {
		return service(root).Judge(caller.Operator(), request(func(c *api.Config) { c.AgentContextDir, c.AgentContext = dir, "tail" }), policies)
	}
	p, problem := judge()
	if problem != nil || p.Input.Context != "aaaaaaaaaa\n\nbbbbbbbbbb\n\ntail\n" {
		t.Fatalf("context %q, %v", p.Input.Context, problem)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.md"), make([]byte, 1<<20+1), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, problem = judge(); problem == nil || problem.Details["field"] != "config.agentContextDir" {
		t.Errorf("a file that is too long: %v", problem)
	}
	if err := os.WriteFile(filepath.Join(dir, "c.md"), make([]byte, 1<<20-10), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, problem = judge(); problem == nil || !strings.Contains(problem.Detail, "may have 1048576") {
		t.Errorf("together too long: %v", problem)
	}
	os.Remove(filepath.Join(dir, "c.md"))
	for i := range 70 {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i/26))+string(rune('a'+i%26))+".md"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, problem = judge(); problem == nil || !strings.Contains(problem.Detail, "more than 64") {
		t.Errorf("too many files: %v", problem)
	}
}

// TestContextRace reads a context that another run's agent exchanges meanwhile, for
// links out of the root and into another part of it.
//
// probe: F1
// oracle: the context that the agent would be given, in which only the directory's own
// file may be
func TestContextRace(t *testing.T) {
	base := t.TempDir()
	live := mkdir(t, agentUID(), base, "root", "live")
	dir, link := mkdir(t, agentUID(), live, "context"), filepath.Join(live, "link")
	s := service(filepath.Join(base, "root"))
	for _, target := range []string{mkdir(t, agentUID(), base, "outside"), mkdir(t, agentUID(), base, "root", "neighbour")} {
		for at, text := range map[string]string{dir: "its own", target: "SECRET"} {
			if err := os.WriteFile(filepath.Join(at, "a.md"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		var agent sync.WaitGroup
		agent.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
					unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				}
			}
		})
		read, refused := 0, 0
		for range 2000 {
			p, problem := s.Judge(caller.Operator(), request(func(c *api.Config) { c.AgentContextDir = dir }), policies)
			switch {
			case problem != nil:
				refused++
			case p.Input.Context == "its own\n":
				read++
			default:
				t.Fatalf("%s: %q was read for %s", target, p.Input.Context, p.ContextDir)
			}
		}
		close(ended)
		agent.Wait()
		if read == 0 || refused == 0 {
			t.Errorf("%s: read %d times, refused %d times: nothing was exchanged in time", target, read, refused)
		}
		if err := errors.Join(os.RemoveAll(dir), os.RemoveAll(link)); err != nil {
			t.Fatal(err)
		}
		mkdir(t, agentUID(), live, "context")
	}
}

func TestExtraCA(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ca.pem")
	s := service()
	s.ExtraCA = path
	const text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for content, ok := range map[string]bool{text: true, "": false, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n": false} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p, problem := s.Judge(caller.Operator(), request(nil), policies)
		if ok != (problem == nil) || ok && string(p.Input.ExtraCA) != text || !ok && problem.Status != 500 {
			t.Errorf("%q: %v", content, problem)
		}
	}
	os.Remove(path)
	if _, problem := s.Judge(caller.Operator(), request(nil), policies); problem == nil || problem.Code != api.CodeStartFailed {
		t.Errorf("no file: %v", problem)
	}
}

func TestResolveRoots(t *testing.T) {
	base := t.TempDir()
	link := filepath.Join(base, "link")
	if err := os.Symlink(base, link); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(base)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := plan.ResolveRoots([]string{link}); err != nil || !slices.Equal(got, []string{real}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"relative", base + "/absent", "/etc/passwd"} {
		if _, err := plan.ResolveRoots([]string{bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
