package executor_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/executor/api"
)

// TestGitHubCheckoutIsBestEffort: without a way to the repository the run goes on
// with an empty workspace, and says why.
func TestGitHubCheckoutIsBestEffort(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	id := h.begin(with(command("ls -A | wc -l", `"timeoutMs":60000`), `{"owner":"acme","repo":"app","profile":"read","prePopulateBranch":"feature","baseBranch":"main"}`))
	res := h.finish(id)
	if !res.Success || res.Output != "0\n" || res.Github.Checkout != api.CheckoutFailed {
		t.Fatalf("%+v, receipt %+v, %v", res, res.Github, res.Error)
	}
	var stages []string
	warned := false
	for _, ev := range h.events(id, "") {
		if ev.Type == api.EventStage {
			stages = append(stages, ev.Stage)
		}
		warned = warned || ev.Type == api.EventWarning && strings.Contains(ev.Text, "the workspace could not be filled")
	}
	if want := []string{"queue", "token", "cell", "start", "ready", "checkout", "running", "teardown"}; !slices.Equal(stages, want) || !warned {
		t.Errorf("stages %v, warned %v", stages, warned)
	}
	spec := h.backend.jobs[0]
	if !slices.Equal(spec.Argv, []string{"/sallyport/entrypoint", "checkout"}) || slices.ContainsFunc(spec.Env, func(e string) bool { return strings.Contains(e, secretKey) }) {
		t.Errorf("the checkout's job: %q, or it has a provider's key", spec.Argv)
	}
}

// TestCheckedOutCommit: the result and the audit record name what the checkout says, where
// that is a commit.
func TestCheckedOutCommit(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	commit := strings.Repeat("0123456789", 4)
	for said, want := range map[string]string{commit: commit, "": "", "HEAD": "", commit + commit: "", commit + "\n" + commit: ""} {
		h.backend.set(func(b *processBackend) { b.git = []string{"echo", said} })
		res := h.finish(h.begin(with(command("true"), `{"owner":"acme","repo":"app","profile":"read","prePopulateBranch":"main"}`)))
		records, _ := audited(t, h.config.State, res)
		if !res.Success || res.Github.Checkout != api.CheckoutDone || res.Github.Commit != want || len(records) != 1 || records[0].Commit != want {
			t.Errorf("%q: receipt %+v, records %+v", said, res.Github, records)
		}
	}
}

// TestGitHubCheckoutHangs: a sandbox that does not react any more while its workspace
// is filled does not keep its run from ending.
//
// probe: X25
// oracle: the result, and the state of the token at GitHub
func TestGitHubCheckoutHangs(t *testing.T) {
	const access = `{"owner":"acme","repo":"app","profile":"read","prePopulateBranch":"main"}`
	g := startGitHub(t)
	for _, tt := range []struct {
		name, timeout string
		cancel        bool
		want          api.Code
	}{
		{"cancelled", "600000", true, api.CodeCancelled},
		{"late", "3000", false, api.CodeTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := start(t, g.access(false))
			h.backend.set(func(b *processBackend) { b.git = []string{"sleep", "30"} })
			id := h.begin(with(command("true", `"timeoutMs":`+tt.timeout), access))
			h.await(id, func(ev api.Event) bool { return ev.Stage == "checkout" })
			var pid int
			h.backend.set(func(b *processBackend) { pid = b.last.cmd.Process.Pid })
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			if tt.cancel {
				h.do(http.MethodDelete, "/v1/executions/"+id, "")
			}
			for deadline := time.Now().Add(40 * time.Second); get[api.Execution](h, "/v1/executions/"+id).State != api.StateFinished; time.Sleep(50 * time.Millisecond) {
				if time.Now().After(deadline) {
					syscall.Kill(pid, syscall.SIGKILL)
					t.Fatal("the run does not end")
				}
			}
			wantCode(t, h.finish(id), tt.want)
			if states := g.states(); slices.Contains(states, "live") {
				t.Errorf("tokens are %v", states)
			}
			h.wantClean()
		})
	}
}

// TestCheckoutIsNotTheAgent: what the kernel counted while the workspace was filled is
// not held against the agent, and what it counts after that is.
func TestCheckoutIsNotTheAgent(t *testing.T) {
	const (
		killed  = "/sys/fs/cgroup/memory.events:oom_kill "
		refused = "/sys/fs/cgroup/pids.events:max "
	)
	g := startGitHub(t)
	h := start(t, g.access(false))
	for _, tt := range []struct {
		name          string
		before, after string // what the kernel counts
		engine        bool   // says that memory ran out, from the checkout on
		want          api.Code
		warned        string
	}{
		{"memory ran out in the checkout", killed + "2", killed + "2", true, api.CodeCommandFailed, "the sandbox ran out of memory"},
		{"and again", killed + "2", killed + "3", true, api.CodeMemory, "the sandbox ran out of memory"},
		{"the checkout ran out of processes", refused + "7", refused + "7", false, api.CodeCommandFailed, "the sandbox ran out of processes"},
		{"and so does the agent", killed + "0\n" + refused + "7", killed + "0\n" + refused + "8", false, api.CodePIDs, ""},
		{"only the engine says so, of the checkout", "", "", true, api.CodeCommandFailed, "the sandbox ran out of memory"},
	} {
		h.backend.set(func(b *processBackend) { b.git, b.cgroup, b.oom = []string{"sh", "-c", "exit 1"}, tt.before, tt.engine })
		id := h.begin(with(command(`echo begun; until [ -e "$HOME/go" ]; do sleep 0.02; done; exit 3`), `{"owner":"acme","repo":"app","profile":"read","prePopulateBranch":"main"}`))
		h.awaitText(id, "begun")
		h.backend.set(func(b *processBackend) {
			b.cgroup = tt.after
			if err := os.WriteFile(filepath.Join(b.last.home, "go"), nil, 0o600); err != nil {
				t.Error(err)
			}
		})
		res := h.finish(id)
		if res.Error == nil || res.Error.Code != tt.want {
			t.Errorf("%s: %+v, want %s", tt.name, res.Error, tt.want)
		}
		warned := slices.ContainsFunc(h.events(id, ""), func(ev api.Event) bool {
			return ev.Type == api.EventWarning && strings.Contains(ev.Text, "could not be filled") && strings.Contains(ev.Text, tt.warned)
		})
		if !warned {
			t.Errorf("%s: no warning with %q", tt.name, tt.warned)
		}
	}
	h.wantClean()
}
