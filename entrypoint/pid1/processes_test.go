package pid1

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestSignals(t *testing.T) {
	for _, kind := range []struct {
		name  string
		start func(*testing.T) *sandbox
	}{
		{"pid 1", func(t *testing.T) *sandbox { return startSandbox(t) }},
		{"child", startChild},
	} {
		t.Run(kind.name, func(t *testing.T) {
			s := openSession(t, kind.start(t))
			dir := workspace(t)
			job := shell(dir, `trap 'exit 7' TERM; echo up; while :; do sleep 0.01; done`)
			if exit := withSignal(t, s, job, "", "up", "TERM"); exit.Code != 7 {
				t.Errorf("TERM, handled: %+v", exit)
			}
			job = shell(dir, `trap 'exit 8' INT; echo up; while :; do sleep 0.01; done`)
			if exit := withSignal(t, s, job, "", "up", "INT"); exit.Code != 8 {
				t.Errorf("INT, handled: %+v", exit)
			}
			job = shell(dir, `trap '' TERM; echo up; while :; do sleep 0.01; done`)
			job.Limits.KillGraceMS = 50
			if exit := withSignal(t, s, job, "", "up", "TERM"); exit.Signal != "KILL" {
				t.Errorf("TERM, ignored: %+v, want KILL after the grace", exit)
			}
			// TERM reaches a process that has left the group, too.
			job = shell(dir, `trap : TERM; setsid sh -c 'trap "echo stray >stray; exit 0" TERM; echo up; while :; do sleep 0.01; done'`)
			job.Limits.KillGraceMS = 20_000
			if exit := withSignal(t, s, job, "", "up", "TERM"); exit.Code != 0 {
				t.Errorf("TERM to all: %+v", exit)
			}
			if _, err := os.Stat(filepath.Join(dir, "stray")); err != nil {
				t.Errorf("the process of another session got no TERM: %v", err)
			}
		})
	}
}

// TestNothingSurvivesAJob: daemons and orphans of a job are gone when its exit
// arrives, even one that holds its output open.
func TestNothingSurvivesAJob(t *testing.T) {
	for _, kind := range []struct {
		name  string
		start func(*testing.T) *sandbox
	}{
		{"pid 1", func(t *testing.T) *sandbox { return startSandbox(t) }},
		{"child", startChild},
	} {
		t.Run(kind.name, func(t *testing.T) {
			sb := kind.start(t)
			s := openSession(t, sb)
			dir := workspace(t)
			long := strconv.Itoa(1e6 + os.Getpid()) // no other run of this test has the same
			got := do(t, s, shell(dir, `
				setsid sh -c 'trap "" TERM HUP; (sleep `+long+` & sleep `+long+`)' &
				(sleep `+long+` &)
				for i in 1 2 3 4 5 6 7 8 9; do (true &) ; done
				echo done`), "")
			if got.out != "done\n" || got.Code != 0 {
				t.Errorf("%q, %+v", got.out, got.Exit)
			}
			if left := sleepers(long); len(left) > 0 {
				t.Errorf("still there: %q", left)
			}
			if kind.name == "pid 1" {
				// zombies would be seen, too
				got = do(t, s, shell(dir, `set -- /proc/[0-9]*; echo $#`), "")
				if n := strings.TrimSpace(got.out); n != "2" { // PID 1 and the shell
					t.Errorf("the next job sees %s processes, not 2", n)
				}
			}
		})
	}
}

// sleepers finds the processes on this machine that sleep for so many seconds.
func sleepers(seconds string) []string {
	var found []string
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		if line, _ := os.ReadFile(name); string(line) == "sleep\x00"+seconds+"\x00" {
			found = append(found, name)
		}
	}
	return found
}

func TestReapsOrphans(t *testing.T) {
	s := session(t)
	got := do(t, s, shell(workspace(t), `
		for i in $(seq 50); do (sleep 0.01 &) ; done
		for i in $(seq 500); do
			left=$(cat /proc/[0-9]*/stat 2>/dev/null | grep -cE '^[0-9]+ \(sleep\)')
			[ $left = 0 ] && break
			sleep 0.05
		done
		echo $left`), "")
	if got.out != "0\n" {
		t.Errorf("%s zombies, %q", strings.TrimSpace(got.out), got.err)
	}
}
