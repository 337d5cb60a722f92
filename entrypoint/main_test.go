package entrypoint

import (
	"os"
	"strings"
	"testing"
)

func TestJobHasExactEnvironment(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	job := Job{ID: "j", Argv: []string{"/usr/bin/env"}, Env: []string{"A=1", "B=two words", "C="}, Dir: dir}
	got := do(t, s, job, "")
	if want := "A=1\nB=two words\nC=\n"; got.out != want || got.Code != 0 {
		t.Errorf("environment %q, exit %+v; want %q", got.out, got.Exit, want)
	}
}

func TestJobHasNothingElse(t *testing.T) {
	r, w, err := os.Pipe() // a descriptor that a backend has left open
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	s := openSession(t, startSandbox(t, r, w))
	got := do(t, s, shell(workspace(t), `
		ls /proc/self/fd | tr '\n' ' '; echo
		grep -E '^(SigBlk|SigIgn):' /proc/self/status
		cat /proc/self/oom_score_adj /proc/1/oom_score_adj
		umask; pwd`), "")
	lines := strings.Split(got.out, "\n")
	want := []string{"0 1 2 3 ", // 3 is the directory that ls reads
		"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "1000"}
	for i, w := range want {
		if i >= len(lines) || lines[i] != w {
			t.Fatalf("line %d of %q, want %q; errors %q", i, got.out, w, got.err)
		}
	}
	if lines[4] == "1000" {
		t.Error("PID 1 would be ended first when memory is short")
	}
}
