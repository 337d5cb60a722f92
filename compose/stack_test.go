package compose_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/client"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// The addresses of the tests' stack, which differ from those of the demo so that
// both can run on one machine.
const (
	stackName = "sallyport-test"
	stackPort = "7291"
	lan       = "198.19.2" // private, admitted by the allowlist
	wan       = "11.22.34" // looks public
	watched   = "198.19.9" // for metrics
	model     = "anthropic/claude-sonnet-4-6"
)

// asDemo is what a script of this stack begins with. demo-env.sh keeps nothing of
// what a developer has set for another stack, keys among it.
const asDemo = `. scripts/demo-env.sh
export SALLYPORT_MAX_RUNS=20 SALLYPORT_OUTPUT_BYTES=8MiB SALLYPORT_WORKSPACE_BYTES=64MiB
export SALLYPORT_COMPOSE_FILES="$SALLYPORT_COMPOSE_FILES compose/observe.yaml" SALLYPORT_METRICS_NET=` + watched + `
`

// st is the one stack that all tests of this package share.
var st stack

func TestMain(m *testing.M) {
	code, err := withStack(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose tests:", err)
		code = 1
	}
	os.Exit(code)
}

// withStack starts the stack with the demo's internet, runs the tests, takes it
// down and looks whether anything of it is left.
func withStack(m *testing.M) (code int, err error) {
	work, err := os.MkdirTemp("/var/tmp", "sallyport-test-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(work)
	if st, err = newStack(work); err != nil {
		return 1, err
	}
	if out, err := st.script("scripts/up"); err != nil {
		_, _ = st.script("scripts/down", stackName)
		_ = exec.Command("docker", "volume", "rm", "-f", stackName+"_decisions").Run()
		return 1, fmt.Errorf("start the stack: %w\n%s", err, out)
	}
	if err := st.connect(nil); err != nil {
		return 1, err
	}
	code = m.Run()
	if os.Getenv("SALLYPORT_TEST_KEEP") != "" {
		return code, nil
	}
	if out, err := st.script("scripts/down", stackName); err != nil {
		return 1, fmt.Errorf("take the stack down: %w\n%s", err, out)
	}
	// It outlives the stack, for an operator's sake.
	if out, err := exec.Command("docker", "volume", "rm", stackName+"_decisions").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("remove the volume of decisions: %w\n%s", err, out)
	}
	if left := st.leftovers(); left != "" {
		return 1, fmt.Errorf("left on the engine after the stack went down:\n%s", left)
	}
	return code, nil
}

// A stack is a running gate, executor and internet.
type stack struct {
	work  string // scratch
	state string // the executor's state directory
	root  string // callers' directories
	env   []string
	web   *http.Client // reaches the executor and the far side
	*client.Client
}

func newStack(work string) (stack, error) {
	list, err := os.ReadFile("demo-allowlist.yaml")
	if err != nil {
		return stack{}, err
	}
	list = bytes.ReplaceAll(list, []byte("198.19.1."), []byte(lan+"."))
	own := filepath.Join(work, "allowlist.yaml")
	if err := os.WriteFile(own, list, 0o644); err != nil {
		return stack{}, err
	}
	s := stack{web: http.DefaultClient, work: work, state: filepath.Join(work, "state"), root: filepath.Join(work, "root")}
	if err := os.Chmod(work, 0o755); err != nil {
		return stack{}, err
	}
	s.env = append(os.Environ(),
		"SALLYPORT_DEMO_STACK="+stackName, "SALLYPORT_DEMO_PORT="+stackPort, "SALLYPORT_DEMO_ALLOWLIST="+own,
		"SALLYPORT_DEMO_LAN="+lan, "SALLYPORT_DEMO_WAN="+wan,
		"SALLYPORT_DEMO_STATE="+s.state, "SALLYPORT_DEMO_ROOT="+s.root, "SALLYPORT_TAG=dev")
	return s, nil
}

// connect makes the client of the executor that has come up. It uses the
// transport, or its own where that is nil.
func (s *stack) connect(transport http.RoundTripper) error {
	token, err := s.token()
	if err != nil {
		return err
	}
	s.Client = &client.Client{Addr: "http://127.0.0.1:" + stackPort, Token: token, Transport: transport}
	if transport != nil {
		s.web = &http.Client{Transport: transport}
	}
	return nil
}

// token reads the token that the stack's start has made.
func (s *stack) token() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.state, "token"))
	return strings.TrimSpace(string(b)), err
}

// script runs one of the repository's scripts with the settings of this stack.
func (s stack) script(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-c", asDemo + `exec "$@"`, "bash", name}, args...)...)
	cmd.Dir, cmd.Env = "..", s.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// compose runs Docker Compose on this stack.
func (s stack) compose(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-c", asDemo + `. scripts/env.sh && compose "$@"`, "bash"}, args...)...)
	cmd.Dir, cmd.Env = "..", s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("compose %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// reconfigure starts the executor with further settings until the test ends.
func reconfigure(t *testing.T, settings ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings.yaml")
	text := "services: {executor: {environment: {" + strings.Join(settings, ", ") + "}}}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	up := []string{"--progress", "quiet", "up", "--detach", "--no-deps", "executor"}
	t.Cleanup(func() {
		st.compose(t, up...)
		ready(t)
	})
	st.compose(t, append([]string{"-f", file}, up...)...)
	ready(t)
}

// leftovers lists what the engine holds of this stack.
func (s stack) leftovers() string {
	var all []string
	for _, args := range [][]string{{"ps", "-a"}, {"network", "ls"}, {"volume", "ls"}} {
		out, err := exec.Command("docker", append(args, "-q", "--filter", "label=org.sallyport.stack="+stackName)...).CombinedOutput()
		if err != nil {
			all = append(all, err.Error())
		}
		all = append(all, strings.Fields(string(out))...)
	}
	return strings.Join(all, "\n")
}

// docker runs the docker command line and returns what it prints.
func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// container finds the one container of this stack with the role and, if run is
// not empty, of that run.
func container(t *testing.T, role, run string) string {
	t.Helper()
	args := []string{"ps", "-aq", "--filter", "label=org.sallyport.stack=" + stackName, "--filter", "label=org.sallyport.role=" + role}
	if run != "" {
		args = append(args, "--filter", "label=org.sallyport.run="+run)
	}
	ids := strings.Fields(docker(t, args...))
	if len(ids) != 1 {
		t.Fatalf("found %d containers of role %s and run %q, want 1", len(ids), role, run)
	}
	return ids[0]
}

// bash is a request whose agent is a shell script under the policy.
func bash(policy, script string) api.Request {
	return api.Request{Prompt: "go", Config: api.Config{Agent: "command", Argv: []string{"bash", "-c", script}, Egress: policy}}
}

// run executes a request to its end.
func run(t *testing.T, req api.Request) (api.Result, []api.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var events []api.Event
	for e, err := range st.Execute(ctx, req) {
		if err != nil {
			t.Fatalf("execute: %v", err)
		}
		events = append(events, e)
	}
	if len(events) == 0 || events[len(events)-1].Result == nil {
		t.Fatalf("the stream of %d events does not end with a result", len(events))
	}
	return *events[len(events)-1].Result, events
}

// output runs a script that must succeed and returns what it printed.
func output(t *testing.T, policy, script string) (string, api.Result) {
	t.Helper()
	res, events := run(t, bash(policy, script))
	if !res.Success {
		t.Fatalf("the script failed: %+v\noutput: %s\nstandard error: %s", res.Error, res.Output, text(events, api.EventStderr))
	}
	return res.Output, res
}

// text joins the texts of the events of one type.
func text(events []api.Event, kind api.EventType) string {
	var b strings.Builder
	for _, e := range events {
		if e.Type == kind {
			b.WriteString(e.Text)
		}
	}
	return b.String()
}

// begin starts a request and returns its execution once its agent's process has
// written something; the run goes on.
func begin(t *testing.T, req api.Request) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for e, err := range st.Execute(ctx, req) {
		if err != nil {
			t.Fatalf("execute: %v", err)
		}
		if e.Execution != "" {
			id = e.Execution
		}
		if e.Type == api.EventOutput {
			return id
		}
		if e.Result != nil {
			t.Fatalf("the run ended at once: %+v", e.Result.Error)
		}
	}
	t.Fatal("the stream ended without output")
	return ""
}

// finish waits for the result of an execution.
func finish(t *testing.T, id string) api.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for e, err := range st.Events(ctx, id, 0, true) {
		if err != nil {
			t.Fatalf("follow %s: %v", id, err)
		}
		if e.Result != nil {
			return *e.Result
		}
	}
	t.Fatalf("the events of %s end without a result", id)
	return api.Result{}
}

// cancelRun ends an execution that a test has no more need of.
func cancelRun(t *testing.T, id string) {
	t.Helper()
	if _, err := st.Cancel(t.Context(), id); err != nil {
		t.Errorf("cancel %s: %v", id, err)
	}
	finish(t, id)
}

// rows are the receipt's rows about a host with the verdict.
func rows(r account.Receipt, host string, v firewall.Verdict) []account.ReceiptHost {
	return slices.DeleteFunc(slices.Clone(r.Hosts), func(h account.ReceiptHost) bool { return h.Host != host || h.Verdict != v })
}

// wantRow fails the test unless the receipt has a row of that host, kind and
// reason.
func wantRow(t *testing.T, r account.Receipt, host string, kind account.Kind, reason firewall.Reason) {
	t.Helper()
	if !slices.ContainsFunc(r.Hosts, func(h account.ReceiptHost) bool {
		return h.Host == host && h.Kind == kind && h.Reason == reason
	}) {
		t.Errorf("the receipt has no row %s %s %s:\n%+v", kind, host, reason, r.Hosts)
	}
}
