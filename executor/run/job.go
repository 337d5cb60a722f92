package run

import (
	"context"
	"errors"
	"io"
	"strings"

	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/redact"
	"sallyport/executor/store"
)

// A job is the agent's process as seen from outside. Its methods run in one
// goroutine after another, never at once.
type job struct {
	x      *execution
	parser agent.Parser

	stdout     *redact.Stream
	stderr     text
	lastStderr tail
	raw        int64 // bytes of both streams so far

	started bool
	exit    wire.Exit
	err     error // why there is no exit
	escape  *store.ArchiveError
	outcome agent.Outcome
}

func (x *execution) newJob() *job {
	return &job{
		x:      x,
		parser: x.plan.Adapter.NewParser(x.input()),
		stdout: x.redactor.Stream(),
		stderr: text{redacted: x.redactor.Stream()},
	}
}

// run sends the job and follows it to its exit.
func (j *job) run(session *wire.Session) {
	spec := j.x.plan.Adapter.Command(j.x.input())
	spec.ID = j.x.id
	spec.ExtraCA = j.x.plan.Input.ExtraCA
	spec.Artifacts = j.x.plan.Artifacts
	spec.Limits = wire.Limits{
		KillGraceMS:   int(killGrace.Milliseconds()),
		ArtifactBytes: j.x.plan.Limits.Artifacts.Bytes,
		ArtifactFiles: j.x.plan.Limits.Artifacts.Files,
	}
	handlers := wire.Handlers{
		Started: func(wire.Started) { j.start() },
		Stdout:  j.takeStdout,
		Stderr:  j.takeStderr,
	}
	intake := j.x.openIntake()
	if intake != nil {
		handlers.Artifact = intake
	}
	// What ends the job is the end of the session, never that of a context: see stop.
	exit, err := session.Run(context.Background(), spec, strings.NewReader(j.x.plan.Request.Prompt), handlers)
	j.exit = exit
	j.closeIntake(intake, err)
	var artifact *wire.ArtifactError
	if err != nil && !errors.As(err, &artifact) {
		j.err = err
	}
}

func (j *job) start() {
	j.started = true
	j.x.stage("running")
}

// count notes that the process printed something, and ends the run if it
// printed far more than any adapter can make use of.
func (j *job) count(p []byte) {
	if j.raw == 0 {
		j.x.timings.FirstOutput = j.x.since()
	}
	j.raw += int64(len(p))
	if limit := j.x.plan.Limits.OutputBytes; j.raw > rawFactor*limit {
		j.x.fail(outputTooLarge(limit))
	}
}

func (j *job) takeStdout(p []byte) {
	j.count(p)
	j.parse(j.stdout.Next(p))
}

func (j *job) parse(p []byte) {
	if j.x.full() || len(p) == 0 {
		return
	}
	for _, ev := range j.parser.Stdout(p) {
		j.x.emit(ev)
	}
}

func (j *job) takeStderr(p []byte) {
	j.count(p)
	j.emitStderr(j.stderr.next(p))
}

func (j *job) emitStderr(p []byte) {
	if len(p) == 0 {
		return
	}
	j.lastStderr.add(p)
	j.x.emit(api.Event{Type: api.EventStderr, Text: string(p)})
}

// finish takes the agent's part of the result.
func (j *job) finish() {
	j.parse(j.stdout.Flush())
	j.emitStderr(j.stderr.flush())
	if j.err != nil {
		j.exit = wire.Exit{JobID: j.x.id, Code: -1, Error: j.err.Error()}
	}
	j.outcome = j.parser.Finish(j.exit)
	for _, ev := range j.outcome.Events {
		j.x.emit(ev)
	}
	j.x.outcome.agent = j.outcome
	if code := j.exit.Status(); j.started && code >= 0 && code <= 255 { // whatever PID 1 says
		j.x.outcome.exitCode = &code
	}
	for _, s := range j.exit.ArtifactsSkipped {
		j.x.outcome.artifacts = append(j.x.outcome.artifacts, api.Artifact{Name: j.x.redactor.String(s.Name), Skipped: j.x.redactor.String(s.Reason)})
	}
	if j.started && j.err == nil && j.exit.Error != "" {
		j.x.warn("%s", j.exit.Error)
	}
}

// An intake stores artifacts as they arrive.
type intake struct {
	*io.PipeWriter
	done chan struct{}
	kept []api.Artifact
	err  error
}

// openIntake returns nil where the run declared no artifacts.
func (x *execution) openIntake() *intake {
	if len(x.plan.Artifacts) == 0 {
		return nil
	}
	r, w := io.Pipe()
	in := &intake{PipeWriter: w, done: make(chan struct{})}
	go func() {
		defer close(in.done)
		in.kept, in.err = x.entry.SaveArtifacts(r, x.plan.Limits.Artifacts, x.redactor.String)
		if in.err == nil {
			_, in.err = io.Copy(io.Discard, r) // the padding behind the archive
		}
		r.CloseWithError(in.err)
	}()
	return in
}

// closeIntake ends the stream of artifacts; err is why the job has no exit.
func (j *job) closeIntake(in *intake, err error) {
	if in == nil {
		return
	}
	in.CloseWithError(err) // nil is the end of the file
	<-in.done
	j.x.outcome.artifacts = in.kept
	switch {
	case errors.As(in.err, &j.escape):
	case in.err != nil:
		j.x.warn("no artifacts were kept: %v", in.err)
	}
}
