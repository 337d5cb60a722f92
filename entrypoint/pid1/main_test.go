package pid1

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport/entrypoint/wire"
)

func TestJobHasExactEnvironment(t *testing.T) {
	s := session(t)
	job := wire.Job{ID: "j", Argv: []string{"/usr/bin/env"}, Env: []string{"A=1", "B=two words", "C="}, Dir: workspace(t)}
	got := do(t, s, job, "")
	if want := "A=1\nB=two words\nC=\n"; got.out != want || got.Code != 0 {
		t.Errorf("environment %q, exit %+v; want %q", got.out, got.Exit, want)
	}
}

func TestJobHasNothingElse(t *testing.T) {
	r, w, err := os.Pipe() // descriptors that a backend has left open
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	s := openSession(t, startSandbox(t, r, w))
	got := do(t, s, shell(workspace(t), `
		ls /proc/self/fd | tr '\n' ' '; echo
		grep -E '^(SigBlk|SigIgn):' /proc/self/status
		cat /proc/self/oom_score_adj /proc/1/oom_score_adj`), "")
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

// TestThreadsAreThere: a thread that PID 1 needs when no process can be made any
// more would be its end.
func TestThreadsAreThere(t *testing.T) {
	s := session(t)
	got := do(t, s, shell(workspace(t), `sed -n 's/^Threads:\t//p' /proc/1/status`), "")
	if n, err := strconv.Atoi(strings.TrimSpace(got.out)); err != nil || n < spareThreads {
		t.Errorf("PID 1 has %q threads, want %d", got.out, spareThreads)
	}
}

// TestAgentCannotReachPID1 has the positive control that the same user may look
// into a process of its own.
func TestAgentCannotReachPID1(t *testing.T) {
	s := session(t)
	script := `
		sleep 100 & own=$!
		try() {
			if head -c 1 /proc/$2/environ; then echo; echo $1 environ; fi
			if cat /proc/$2/maps >/dev/null; then echo $1 maps; fi
			if : <>/proc/$2/mem; then echo $1 mem; fi
			if readlink /proc/$2/fd/1 >/dev/null; then echo $1 fd; fi
			if : >>/proc/$2/fd/1; then echo $1 output; fi
			if ls /proc/$2/root/ >/dev/null; then echo $1 root; fi
		}
		(try own $own; try pid1 1) 2>/dev/null
		kill $own`
	got := do(t, s, shell(workspace(t), script), "")
	for _, way := range []string{"environ", "maps", "mem", "fd", "output", "root"} {
		if !strings.Contains(got.out, "own "+way+"\n") {
			t.Errorf("control: a process of the agent's own cannot be reached by %s: %q", way, got.out)
		}
		if strings.Contains(got.out, "pid1 "+way+"\n") {
			t.Errorf("the agent reaches PID 1 by %s", way)
		}
	}
	if got := s.Ready(); os.Getuid() == 0 && (got.PID != 1 || got.UID != agentID) {
		t.Errorf("ready %+v, want PID 1 of user %d", got, agentID)
	}
}

func TestAgentCannotEndPID1(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	self := copySelf(t, dir)
	for _, script := range []string{
		`for s in $(seq 1 31); do kill -$s 1; done; echo alive`,
		`for s in $(seq 34 64); do kill -$s 1; done; echo alive`,
		self + `; echo alive`, // by sigqueue, see TestMain
	} {
		job := shell(dir, script)
		job.Env = append(job.Env, stageVar+"="+stageQueue)
		if got := do(t, s, job, ""); got.out != "alive\n" || got.Code != 0 {
			t.Errorf("%s: %q, %q, %+v", script, got.out, got.err, got.Exit)
		}
	}
	if got := do(t, s, shell(dir, "sleep 1000 & kill -9 -1; wait $!; echo $?"), ""); got.out != "137\n" {
		t.Errorf("kill -9 -1: %q, %+v", got.out, got.Exit)
	}
	if got := do(t, s, shell(dir, "echo on"), ""); got.out != "on\n" {
		t.Errorf("the job after it: %+v", got)
	}
}

func TestExit(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	tests := []struct {
		name string
		job  wire.Job
		want wire.Exit // Error is a part of the text
	}{
		{"success", shell(dir, "true"), wire.Exit{}},
		{"status", shell(dir, "exit 7"), wire.Exit{Code: 7}},
		{"own signal", shell(dir, "kill -SEGV $$"), wire.Exit{Code: -1, Signal: "SEGV"}},
		{"no argv", wire.Job{ID: "job", Dir: dir}, wire.Exit{Code: -1, Error: "no program"}},
		{"empty program", wire.Job{ID: "job", Argv: []string{""}, Dir: dir}, wire.Exit{Code: -1, Error: "no program"}},
		{"not in PATH", wire.Job{ID: "job", Argv: []string{"nosuch"}, Env: []string{testPath}, Dir: dir}, wire.Exit{Code: -1, Error: `"nosuch": it is not in PATH`}},
		{"no PATH", wire.Job{ID: "job", Argv: []string{"sh"}, Dir: dir}, wire.Exit{Code: -1, Error: "no PATH"}},
		{"relative PATH", wire.Job{ID: "job", Argv: []string{"sh"}, Env: []string{"PATH=bin:."}, Dir: dir}, wire.Exit{Code: -1, Error: "not in PATH"}},
		{"no such file", wire.Job{ID: "job", Argv: []string{"/nosuch"}, Dir: dir}, wire.Exit{Code: -1, Error: `start "/nosuch": no such file`}},
		{"not executable", wire.Job{ID: "job", Argv: []string{"/etc/passwd"}, Dir: dir}, wire.Exit{Code: -1, Error: "permission denied"}},
		{"no such directory", shell("/nosuch", "true"), wire.Exit{Code: -1, Error: `working directory "/nosuch"`}},
		{"relative directory", shell("x", "true"), wire.Exit{Code: -1, Error: "not absolute"}},
		{"malformed environment", wire.Job{ID: "job", Argv: []string{"sh"}, Env: []string{testPath, "x"}, Dir: dir}, wire.Exit{Code: -1, Error: "entry 2"}},
		{"NUL in environment", wire.Job{ID: "job", Argv: []string{"sh"}, Env: []string{"A=\x00"}, Dir: dir}, wire.Exit{Code: -1, Error: "entry 1"}},
		{"NUL in argument", wire.Job{ID: "job", Argv: []string{"/bin/sh", "\x00"}, Dir: dir}, wire.Exit{Code: -1, Error: "NUL"}},
		{"glob", wire.Job{ID: "job", Argv: []string{"/bin/true"}, Dir: dir, Artifacts: []string{"../x"}}, wire.Exit{Code: -1, Error: "stay within it"}},
		{"still works", shell(dir, "exit 3"), wire.Exit{Code: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := do(t, s, tt.job, "").Exit
			if got.Code != tt.want.Code || got.Signal != tt.want.Signal || !strings.Contains(got.Error, tt.want.Error) ||
				(got.Error == "") != (tt.want.Error == "") {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestStreams(t *testing.T) {
	s := session(t)
	big := strings.Repeat("0123456789abcdef", 200_000) // more than the window and all the pipes
	got := do(t, s, shell(workspace(t), "cat; echo done >&2"), big)
	if got.out != big || got.err != "done\n" {
		t.Errorf("%d bytes of %d came back, errors %q", len(got.out), len(big), got.err)
	}
	if got := do(t, s, shell(workspace(t), "wc -c; read x; echo $?"), ""); got.out != "0\n1\n" {
		t.Errorf("without input: %q", got.out)
	}
}

// TestUnreadInput: a process that never reads, or has closed its input, keeps
// neither a signal nor its own end waiting.
func TestUnreadInput(t *testing.T) {
	s := session(t)
	big := strings.Repeat("x", 4*wire.StdinWindow)
	if got := do(t, s, shell(workspace(t), "exec <&-; exit 5"), big); got.Code != 5 {
		t.Errorf("with a closed input: %+v", got.Exit)
	}
	exit := withSignal(t, s, shell(workspace(t), "echo up; exec sleep 1000"), big, "up", "KILL")
	if exit.Signal != "KILL" {
		t.Errorf("%+v, want KILL", exit)
	}
	if got := do(t, s, shell(workspace(t), "cat"), "next"); got.out != "next" {
		t.Errorf("the next job's input is %q", got.out)
	}
}

// withSignal runs a job and sends it a signal once its output holds a mark.
func withSignal(t *testing.T, s *wire.Session, job wire.Job, stdin, mark, name string) wire.Exit {
	t.Helper()
	var out strings.Builder
	sent := false
	exit, err := s.Run(deadline(t), job, strings.NewReader(stdin), wire.Handlers{Stdout: func(b []byte) {
		out.Write(b)
		if !sent && strings.Contains(out.String(), mark) {
			sent = true
			if err := s.Signal(name); err != nil {
				t.Errorf("Signal(%s): %v", name, err)
			}
		}
	}})
	if err != nil {
		t.Fatalf("Run: %v", err)
	}
	return exit
}

// TestSlowExecutor: a process whose output is not taken is held up, and loses
// nothing.
func TestSlowExecutor(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	const blocks = 200
	job := shell(dir, fmt.Sprintf(`head -c %d /dev/zero; echo x >flag`, blocks*wire.ChunkSize))
	first, total := true, 0
	exit, err := s.Run(deadline(t), job, nil, wire.Handlers{Stdout: func(b []byte) {
		if first {
			first = false
			time.Sleep(300 * time.Millisecond) // enough for the process to end, if it could
			if _, err := os.Stat(filepath.Join(dir, "flag")); err == nil {
				t.Error("the process has written all although nobody took it")
			}
		}
		total += len(b)
	}})
	if err != nil || exit.Code != 0 || total != blocks*wire.ChunkSize {
		t.Errorf("%d bytes, %+v, %v; want %d", total, exit, err, blocks*wire.ChunkSize)
	}
}

// TestSlowExecutorAfterExit: what a process wrote before its end arrives however
// late it is taken.
func TestSlowExecutorAfterExit(t *testing.T) {
	s := session(t)
	var got bytes.Buffer
	_, err := s.Run(deadline(t), shell(workspace(t), `head -c 400000 /dev/zero; echo end`), nil, wire.Handlers{Stdout: func(b []byte) {
		time.Sleep(100 * time.Millisecond)
		got.Write(b)
	}})
	if err != nil || got.Len() != 400_004 {
		t.Errorf("%d bytes of 400004, %v", got.Len(), err)
	}
}

// TestEndsWithoutExecutor: a sandbox ends by itself, with all in it, when its
// executor closes the session, goes away, or talks nonsense.
func TestEndsWithoutExecutor(t *testing.T) {
	tests := []struct {
		name string
		end  func(*sandbox, *wire.Session)
	}{
		{"close", func(_ *sandbox, s *wire.Session) { s.Close() }},
		{"output broken", func(sb *sandbox, _ *wire.Session) { sb.out.Close() }},
		{"nonsense", func(sb *sandbox, _ *wire.Session) { sb.in.Write([]byte("\xff\x00\x00\x00\x00")) }},
		{"frame of the other direction", func(sb *sandbox, _ *wire.Session) { sb.in.Write([]byte("\x01\x00\x00\x00\x00")) }},
		{"second job", func(sb *sandbox, _ *wire.Session) { wire.NewWriter(sb.in).WriteJSON(wire.FrameJob, wire.Job{ID: "2"}) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sb := startSandbox(t)
			s := openSession(t, sb)
			up := make(chan struct{})
			ended := make(chan error)
			ctx := deadline(t)
			go func() {
				n := 0
				job := shell(workspace(t), `trap "" TERM; sleep 1000 & while :; do echo up; sleep 0.01; done`)
				exit, err := s.Run(ctx, job, nil, wire.Handlers{Stdout: func([]byte) {
					if n++; n == 1 {
						close(up)
					}
				}})
				if err == nil && exit.Signal != "KILL" {
					err = fmt.Errorf("the job ended in order: %+v", exit)
				}
				ended <- err
			}()
			<-up
			tt.end(sb, s)
			sb.awaitEnd(t)
			// The exit of the killed job may still get through.
			if err := <-ended; err != nil && strings.Contains(err.Error(), "in order") {
				t.Error(err)
			}
			<-s.Ended()
			if err := s.Signal("TERM"); err == nil {
				t.Error("a session that is over takes a signal")
			}
		})
	}
}

func TestContextEndsRun(t *testing.T) {
	sb := startSandbox(t)
	s := openSession(t, sb)
	ctx, cancel := context.WithCancelCause(deadline(t))
	why := errors.New("enough")
	_, err := s.Run(ctx, shell(workspace(t), "echo up; sleep 1000"), nil, wire.Handlers{Stdout: func([]byte) { cancel(why) }})
	if !errors.Is(err, why) {
		t.Errorf("Run: %v, want %v", err, why)
	}
	sb.awaitEnd(t)
	if _, err := s.Run(deadline(t), shell("/", "true"), nil, wire.Handlers{}); err == nil {
		t.Error("the session takes another job")
	}
}

func TestOneJobAtATime(t *testing.T) {
	s := session(t)
	if err := s.Signal("TERM"); err == nil {
		t.Error("a signal without a job is taken")
	}
	_, err := s.Run(deadline(t), shell(workspace(t), "echo up"), nil, wire.Handlers{Stdout: func([]byte) {
		if _, err := s.Run(deadline(t), shell("/", "true"), nil, wire.Handlers{}); err == nil {
			t.Error("a second job is taken")
		}
		if err := s.Signal("HUP"); err == nil {
			t.Error("an unknown signal is taken")
		}
	}})
	if err != nil {
		t.Error(err)
	}
	// Too large for the wire: refused here, and the session goes on.
	large := shell(workspace(t), "true")
	large.Files = []wire.File{{Path: "/tmp/x", Content: make([]byte, wire.MaxPayload)}}
	if _, err := s.Run(deadline(t), large, nil, wire.Handlers{}); err == nil {
		t.Error("a job over the limit is taken")
	}
	if got := do(t, s, shell(workspace(t), "echo on"), ""); got.out != "on\n" {
		t.Errorf("the job after it: %+v", got)
	}
}
