package compose_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/statedir"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// ready waits until the executor says that it can take a run.
func ready(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for {
		resp, err := st.web.Get("http://127.0.0.1:" + stackPort + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the executor is not ready after 3 min: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// TestRunOutlivesItsCaller hangs up on a run.
//
// probe: L8
// oracle: the result, asked for later
func TestRunOutlivesItsCaller(t *testing.T) {
	id := begin(t, bash("strict", `echo started; sleep 3; echo ended`)) // begin hangs up
	if res := finish(t, id); !res.Success || res.Output != "started\nended\n" {
		t.Errorf("the run whose caller left ended with %+v %q", res.Error, res.Output)
	}
}

// TestCancel cancels a run.
//
// probe: L8
// oracle: the result, and the engine, which has no sandbox left
func TestCancel(t *testing.T) {
	id := begin(t, bash("strict", `echo started; sleep 300`))
	if _, err := st.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	gone(t, id, 10*time.Second)
	res := finish(t, id)
	wantError(t, res, api.CodeCancelled)
	if res.StopReason != "error_aborted" {
		t.Errorf("stopReason is %q, want error_aborted", res.StopReason)
	}
}

func TestSandboxKilledFromOutside(t *testing.T) {
	id := begin(t, bash("strict", `echo started; sleep 300`))
	docker(t, "kill", container(t, "sandbox", id))
	wantError(t, finish(t, id), api.CodeLost)
}

// TestGateKilledInMidRun takes the gate away from a run that uses it.
//
// probe: N13, L3
// oracle: the result of the run, the engine, which has no sandbox left, and a run once
// the gate is back
func TestGateKilledInMidRun(t *testing.T) {
	gate := container(t, "gate", "")
	id := begin(t, bash("strict", `echo started; while curl -sS -m 5 -o /dev/null https://docs.example/; do sleep 0.1; done; echo cut; sleep 300`))
	docker(t, "kill", gate)
	res := finish(t, id)
	wantError(t, res, api.CodeGateUnavailable)
	if res.Error != nil && !res.Error.Retryable {
		t.Error("gate_unavailable is not marked retryable")
	}
	gone(t, id, 10*time.Second)

	// Without a gate nothing starts.
	for e, err := range st.Execute(t.Context(), bash("strict", "echo never")) {
		var problem *api.Problem
		switch {
		case errors.As(err, &problem) && problem.Code == api.CodeGateUnavailable:
		case err != nil:
			t.Errorf("without a gate: %v, want gate_unavailable", err)
		case e.Result != nil:
			wantError(t, *e.Result, api.CodeGateUnavailable)
		case e.Type == api.EventOutput:
			t.Error("a run started without a gate")
		}
	}

	docker(t, "start", gate)
	ready(t)
	if out, _ := output(t, "strict", `curl -fsS https://docs.example/`); !strings.Contains(out, "allows") {
		t.Errorf("the run after the gate came back printed %q", out)
	}
}

// TestExecutorKilledInMidRun also makes a container and a network of another
// stack, which the sweep must not touch.
//
// probe: L1, L12
// oracle: the engine's objects and the gate's leases before and after; another stack's
// objects are still there
func TestExecutorKilledInMidRun(t *testing.T) {
	const other = "sallyport-test-other"
	foreign := docker(t, "run", "-d", "--label", "org.sallyport.stack="+other, "--label", "org.sallyport.role=sandbox", "--label", "org.sallyport.run=x",
		"--entrypoint", "sleep", "sallyport/agent:dev", "300")
	foreignNet := docker(t, "network", "create", "--internal", "--label", "org.sallyport.stack="+other, "--label", "org.sallyport.role=network", other)
	t.Cleanup(func() { docker(t, "rm", "-f", foreign); docker(t, "network", "rm", foreignNet) })

	id := begin(t, bash("strict", `for i in 1 2 3; do curl -sS -o /dev/null https://docs.example/; done; echo started; sleep 300`))
	executor := container(t, "executor", "")
	before := cells(t)
	if n := leases(t, id); n != 1 {
		t.Fatalf("control: the gate has %d leases of the run, want 1", n)
	}
	docker(t, "kill", "-s", "KILL", executor)
	docker(t, "start", executor)
	ready(t)
	gone(t, id, 10*time.Second)
	after := cells(t)
	for cell := range before {
		if after[cell] {
			t.Errorf("the cell %s of the killed executor is still there", cell)
		}
	}
	res := finish(t, id)
	wantError(t, res, api.CodeLost)
	if res.Output != "started\n" || res.Error != nil && res.Error.Details["receipt"] != "gate" {
		t.Errorf("what is known of the run: %+v, %+v", res, res.Error)
	}
	tunnels := slices.DeleteFunc(rows(res.Receipt, "docs.example", firewall.Allow), func(h account.ReceiptHost) bool { return h.Kind != account.KindTLS })
	if len(tunnels) != 1 || tunnels[0].Count != 3 || tunnels[0].BytesDown == 0 {
		t.Errorf("the receipt has %+v of docs.example, want 3 connections: %+v", tunnels, res.Receipt)
	}
	wantAudited(t, res, audit.StateLost)
	wantAudited(t, finish(t, begin(t, bash("strict", "echo fine"))), audit.StateFinished)
	if got := docker(t, "inspect", "-f", "{{.State.Running}}", foreign); got != "true" {
		t.Errorf("another stack's container runs: %s", got)
	}
	docker(t, "network", "inspect", foreignNet)
	output(t, "strict", "echo fine")
}

// wantAudited verifies the whole audit log of the stack, in which the record of a result
// must be, and say that its run came to this state.
func wantAudited(t *testing.T, res api.Result, state string) {
	t.Helper()
	dir := statedir.Audit(st.state)
	key, err := audit.CurrentKey(dir)
	if err != nil || res.Audit == nil {
		t.Fatalf("the run's record is at %+v, the key: %v", res.Audit, err)
	}
	var export bytes.Buffer
	if err := audit.Export(&export, dir, nil); err != nil {
		t.Fatal(err)
	}
	place, found := audit.Place(*res.Audit), ""
	_, err = audit.Verify(&export, audit.Trust{Keys: []audit.PublicKey{key}, Places: []audit.Place{place}}, func(e audit.Entry) error {
		if r, err := e.Run(); err == nil && e.Place == place && r.Execution == res.ExecutionID {
			found = r.Outcome.State
		}
		return nil
	})
	if err != nil || found != state {
		t.Errorf("the record says %q, want %q; the log: %v", found, state, err)
	}
}

// leases asks the gate, on its control socket, how many leases it has for a run.
func leases(t *testing.T, run string) (n int) {
	t.Helper()
	volume := docker(t, "volume", "inspect", "-f", "{{.Mountpoint}}", stackName+"_control")
	all, err := (&control.Client{Socket: filepath.Join(volume, "control.sock")}).Cells(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if c.Run == run {
			n++
		}
	}
	return n
}

// cells are the networks of this stack's cells, by their ID on the engine.
func cells(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, id := range strings.Fields(docker(t, "network", "ls", "-q", "--filter", "label=org.sallyport.stack="+stackName, "--filter", "label=org.sallyport.cell")) {
		all[id] = true
	}
	return all
}

// TestGateDoesNotStartOnABadAllowlist starts gates on bad files.
//
// probe: P1
// oracle: the state and exit code of the gate's container, and what it logged; the good
// file starts
func TestGateDoesNotStartOnABadAllowlist(t *testing.T) {
	good, err := os.ReadFile("../allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ content, says string }{
		"empty":       {"", "empty"},
		"malformed":   {"version: 1\npolicies: [\n", "allowlist.yaml:"},
		"unknown-key": {"version: 1\npolicys: {}\n", "allowlist.yaml:2"},
		"star":        {"version: 1\npolicies:\n  strict:\n    allow:\n      - \"*.com\"\n", "allowlist.yaml:5"},
		"control":     {string(good), ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(st.work, "bad", name, "allowlist.yaml")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.content), 0o644); err != nil {
				t.Fatal(err)
			}
			wantGateExit(t, []string{"-v", file + ":/etc/sallyport/allowlist.yaml:ro"}, c.says)
		})
	}
	t.Run("missing", func(t *testing.T) { wantGateExit(t, nil, "allowlist.yaml") })
}

// wantGateExit starts a gate of its own and wants it to end by itself with an
// error that says so, or, where says is empty, to go on running.
func wantGateExit(t *testing.T, options []string, says string) {
	t.Helper()
	args := append([]string{"create", "--network", "none"}, options...)
	id := docker(t, append(args, "sallyport/gate:dev")...)
	defer docker(t, "rm", "-f", id)
	docker(t, "start", id)
	var state, logs string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		state = docker(t, "inspect", "-f", "{{.State.Running}} {{.State.ExitCode}}", id)
		logs = docker(t, "logs", id)
		if strings.HasPrefix(state, "false") || strings.Contains(logs, "gate started") {
			break
		}
	}
	if says == "" {
		if state != "true 0" || !strings.Contains(logs, "gate started") {
			t.Errorf("control: with the good file the gate is %q:\n%s", state, logs)
		}
		return
	}
	if strings.HasPrefix(state, "true") || state == "false 0" || !strings.Contains(logs, says) {
		t.Errorf("the gate is %q and said %q, want an exit with an error and %q", state, logs, says)
	}
}

// TestFailedStartSaysWhy starts stacks of their own that cannot come up: for a word of
// the executor, and for one of Docker Compose. The control is the stack of all tests.
func TestFailedStartSaysWhy(t *testing.T) {
	const stack = "sallyport-test-fails"
	t.Cleanup(func() {
		if out, err := exec.Command("../scripts/down", stack).CombinedOutput(); err != nil {
			t.Errorf("take it down: %v\n%s", err, out)
		}
	})
	for name, c := range map[string]struct{ setting, says string }{
		"a wrong setting": {"SALLYPORT_MAX_RUNS=none", "SALLYPORT_MAX_RUNS is \"none\""},
		"a taken port":    {"SALLYPORT_PORT=" + stackPort, "port is already allocated"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "../scripts/up")
			cmd.Env = append(os.Environ(), "SALLYPORT_STACK="+stack, "SALLYPORT_PORT=7299", "SALLYPORT_TAG=dev",
				"SALLYPORT_STATE="+filepath.Join(t.TempDir(), "state"), "SALLYPORT_COMPOSE_FILES=compose/compose.yaml", c.setting)
			var stderr bytes.Buffer // alone: scripts drop what it prints
			cmd.Stderr = &stderr
			err := cmd.Run()
			if err == nil || ctx.Err() != nil || !strings.Contains(stderr.String(), c.says) || !strings.Contains(stderr.String(), "did not come up") {
				t.Errorf("%v, want a failure that says %q:\n%s", err, c.says, &stderr)
			}
		})
	}
}
