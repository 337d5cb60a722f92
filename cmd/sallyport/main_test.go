package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"sallyport/entrypoint/pid1"
)

var update = flag.Bool("update", false, "write what the scripts got to testdata")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"sallyport": main,
		"entrypoint": func() { // PID 1 of the tests' sandboxes
			if err := pid1.Main(context.Background(), os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		},
	})
}

// TestScripts runs testdata/*.txtar against a real executor whose sandboxes are
// plain processes. $FLAKY is the same executor behind connections that break
// after every few events, $STATE a directory with its socket, $OWN its own, $SICK one that is not ready, $NOBODY an address where
// nothing listens. $GITHUB_* are of a GitHub where an App has one installation.
func TestScripts(t *testing.T) {
	healthy := startExecutor(t, "")
	sick := startExecutor(t, "host-listener")
	gitHub := startGitHub(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"status": status, "post": post},
		Setup: func(env *testscript.Env) error {
			env.Setenv("SALLYPORT_ADDR", healthy.url)
			env.Setenv("SALLYPORT_TOKEN", testToken)
			env.Setenv("FLAKY", healthy.flaky)
			env.Setenv("STATE", healthy.state)
			env.Setenv("OWN", healthy.own)
			env.Setenv("SICK", sick.url)
			env.Setenv("NOBODY", nobody(t))
			gitHub.setenv(env)
			return nil
		},
	})
}

// post N FILE posts a request that is in a file to the executor, whose answer has the status N.
// Its body is in the file "answer".
func post(ts *testscript.TestScript, _ bool, args []string) {
	req, err := http.NewRequest(http.MethodPost, ts.Getenv("SALLYPORT_ADDR")+"/v1/executions", strings.NewReader(ts.ReadFile(args[1])))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+ts.Getenv("SALLYPORT_TOKEN"))
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("answer"), answer, 0o600))
	if fmt.Sprint(resp.StatusCode) != args[0] {
		ts.Fatalf("%s: %s, want %s", resp.Status, answer, args[0])
	}
}

// status N COMMAND... requires that the command ends with the code N.
func status(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if err != nil {
		ts.Fatalf("status: %v", err)
	}
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("status: %v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
