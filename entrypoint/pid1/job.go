package pid1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/entrypoint/pid1/artifacts"
	"sallyport/entrypoint/pid1/files"
	"sallyport/entrypoint/wire"
)

// defaultGrace is the time from TERM to KILL where a job does not say it.
const defaultGrace = 5 * time.Second

// A job is one Job that PID 1 runs.
type job struct {
	spec     wire.Job
	procs    *processes
	executor *peer
	input    *input

	ctx    context.Context // ends when nothing more shall be done for the job
	cancel context.CancelFunc

	mu    sync.Mutex // guards what follows
	pid   int        // 0 until the process runs
	over  bool       // the process has ended
	grace *time.Timer
}

func newJob(spec wire.Job, procs *processes, executor *peer) *job {
	ctx, cancel := context.WithCancel(context.Background())
	return &job{spec: spec, procs: procs, executor: executor, input: newInput(), ctx: ctx, cancel: cancel}
}

// run does all of the job and says how it ended. Afterwards no process of it is
// left and nothing more of it is written.
func (j *job) run() wire.Exit {
	defer j.cancel()
	dir, err := j.prepare()
	if err != nil {
		return failed(err)
	}
	defer unix.Close(dir)
	status, err := j.runProcess()
	if err != nil {
		return failed(err)
	}
	exit := describe(status)
	if j.wantsArtifacts() {
		skipped, err := artifacts.Send(j.ctx, dir, j.spec.Artifacts, j.spec.Limits, j.executor)
		exit.ArtifactsSkipped = skipped
		if err != nil {
			exit.Error = cut("send artifacts: " + err.Error())
		}
		j.executor.write(wire.FrameArtifact, nil) // a failure ends Main
	}
	return exit
}

func (j *job) wantsArtifacts() bool {
	return len(j.spec.Artifacts) > 0 && j.spec.Limits.ArtifactBytes > 0 && j.spec.Limits.ArtifactFiles > 0
}

// prepare does what comes before the process and returns the opened working
// directory, which the process cannot put another one in place of.
func (j *job) prepare() (dir int, err error) {
	if err := j.check(); err != nil {
		return -1, err
	}
	for _, f := range j.spec.Files {
		if err := files.Write(f.Path, f.Mode, f.Content); err != nil {
			return -1, err
		}
	}
	for _, name := range j.spec.Shims {
		if err := files.PlaceShim(name); err != nil {
			return -1, err
		}
	}
	if len(j.spec.ExtraCA) > 0 {
		if err := files.WriteCA(j.spec.ExtraCA); err != nil {
			return -1, err
		}
	}
	dir, err = unix.Open(j.spec.Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open the working directory %q: %w", j.spec.Dir, err)
	}
	return dir, nil
}

// check refuses a job that the kernel would run as something else than was meant.
func (j *job) check() error {
	s := j.spec
	if len(s.Argv) == 0 || s.Argv[0] == "" {
		return errors.New("the job has no program")
	}
	for _, a := range s.Argv {
		if strings.ContainsRune(a, 0) {
			return errors.New("an argument holds a NUL byte")
		}
	}
	for i, e := range s.Env {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" || strings.ContainsRune(e, 0) {
			return fmt.Errorf("environment entry %d is not NAME=value", i+1) // its text may be a secret
		}
	}
	if !path.IsAbs(s.Dir) {
		return fmt.Errorf("the working directory %q is not absolute", s.Dir)
	}
	return wire.CheckGlobs(s.Artifacts)
}

// runProcess starts the process, carries its streams, and waits for it and for
// the end of every other process.
func (j *job) runProcess() (unix.WaitStatus, error) {
	program, err := findProgram(j.spec.Argv[0], j.spec.Env)
	if err != nil {
		return 0, err
	}
	pipes, err := openPipes()
	if err != nil {
		return 0, err
	}
	ended, err := j.start(program, pipes)
	pipes.closeChildEnds()
	if err != nil {
		pipes.closeOwnEnds()
		return 0, err
	}
	j.executor.writeJSON(wire.FrameStarted, wire.Started{JobID: j.spec.ID, PID: j.pid}) // a failure ends Main

	var streams sync.WaitGroup
	streams.Go(func() { j.input.feed(pipes.stdin, j.executor) })
	streams.Go(func() { j.copyOut(pipes.stdout, wire.FrameStdout) })
	streams.Go(func() { j.copyOut(pipes.stderr, wire.FrameStderr) })
	status := <-ended
	j.finish()
	if err := j.procs.killRest(); err != nil {
		j.executor.fail(err) // a sandbox with a process that cannot be killed takes no other job
		pipes.abandon()
	}
	j.input.stop()
	streams.Wait() // without writers the pipes end, however slowly the executor takes what they hold
	pipes.closeOwnEnds()
	return status, nil
}

// start starts the process unless a signal came first.
func (j *job) start(program string, pipes *pipes) (<-chan unix.WaitStatus, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ctx.Err() != nil {
		return nil, errors.New("ended by a signal before the process was started")
	}
	pid, ended, err := j.procs.start(program, j.spec.Argv, j.spec.Env, j.spec.Dir, pipes.child)
	if err != nil {
		return nil, fmt.Errorf("start %q: %w", program, err)
	}
	j.pid = pid
	return ended, nil
}

func (j *job) finish() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over = true
	if j.grace != nil {
		j.grace.Stop()
	}
}

// signal does what the executor's signal frame asks for. Before the process has
// started TERM and KILL keep it from starting, after it has ended they end the
// artifact stream.
func (j *job) signal(name string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pid == 0 || j.over {
		if name != "INT" {
			j.cancel()
		}
		return
	}
	switch name {
	case "INT":
		j.procs.signalGroup(j.pid, unix.SIGINT)
	case "TERM":
		j.procs.signalAll(unix.SIGTERM)
		if j.grace == nil {
			j.grace = time.AfterFunc(j.graceTime(), func() { j.signal("KILL") })
		}
	case "KILL":
		j.procs.signalAll(unix.SIGKILL)
	}
}

func (j *job) graceTime() time.Duration {
	if ms := j.spec.Limits.KillGraceMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return defaultGrace
}

// copyOut carries one output stream; it reads nothing while the executor does
// not take what was read.
func (j *job) copyOut(from *os.File, t wire.FrameType) {
	buf := make([]byte, wire.ChunkSize)
	for {
		n, err := from.Read(buf)
		if n > 0 && j.executor.write(t, buf[:n]) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

func failed(err error) wire.Exit { return wire.Exit{Code: -1, Error: cut(err.Error())} }

// describe turns the kernel's status into an exit frame.
func describe(s unix.WaitStatus) wire.Exit {
	if s.Signaled() {
		name := strings.TrimPrefix(unix.SignalName(s.Signal()), "SIG")
		return wire.Exit{Code: -1, Signal: cmp.Or(name, strconv.Itoa(int(s.Signal())))} // real-time signals have none
	}
	return wire.Exit{Code: s.ExitStatus()}
}

func cut(s string) string {
	if len(s) > wire.MaxErrorText {
		return s[:wire.MaxErrorText]
	}
	return s
}
