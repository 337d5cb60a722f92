package task

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/plan"
	"sallyport/executor/redact"
	"sallyport/executor/store"
)

// killGrace is what a job has from TERM to KILL, by PID 1.
const killGrace = 2 * time.Second

// rawFactor is how many times the output limit an agent may print in all,
// counted with what its adapter drops unread.
const rawFactor = 64

// A job is the agent's process as seen from outside. Its methods run in one
// goroutine after another, never at once.
type job struct {
	plan   *plan.Plan
	spec   wire.Job
	rec    *recorder
	parser agent.Parser

	stdout      *redact.Stream
	stderr      text
	lastStderr  tail
	printed     int64 // bytes of both streams so far
	firstOutput int64 // when it came, in ms since the task was accepted; -1 for never

	started bool
	exit    wire.Exit
	err     error // why there is no exit
	escape  *store.ArchiveError
	ending
}

func newJob(p *plan.Plan, in agent.Input, rec *recorder) *job {
	spec := p.Adapter.Command(in)
	spec.ID = rec.entry.Meta.ID
	spec.ExtraCA = p.Input.ExtraCA
	spec.Artifacts = p.Artifacts
	spec.Limits = wire.Limits{
		KillGraceMS:   int(killGrace.Milliseconds()),
		ArtifactBytes: p.Limits.Artifacts.Bytes,
		ArtifactFiles: p.Limits.Artifacts.Files,
	}
	return &job{
		plan:        p,
		spec:        spec,
		rec:         rec,
		parser:      p.Adapter.NewParser(in),
		stdout:      rec.redactor.Stream(),
		stderr:      text{redacted: rec.redactor.Stream()},
		firstOutput: -1,
	}
}

// run sends the job and follows it to its exit.
func (j *job) run(session *wire.Session) {
	handlers := wire.Handlers{
		Started: func(wire.Started) { j.start() },
		Stdout:  j.takeStdout,
		Stderr:  j.takeStderr,
	}
	intake := j.openIntake()
	if intake != nil {
		handlers.Artifact = intake
	}
	// What ends the job is the end of the session, never that of a context: see stop.
	exit, err := session.Run(context.Background(), j.spec, strings.NewReader(j.plan.Request.Prompt), handlers)
	j.exit = exit
	j.closeIntake(intake, err)
	var artifact *wire.ArtifactError
	if err != nil && !errors.As(err, &artifact) {
		j.err = err
	}
}

func (j *job) start() {
	j.started = true
	j.rec.stage("running")
}

// count notes that the process printed something, and ends the run if it
// printed far more than any adapter can make use of.
func (j *job) count(p []byte) {
	if j.printed == 0 {
		j.firstOutput = j.rec.since()
	}
	j.printed += int64(len(p))
	if limit := j.plan.Limits.OutputBytes; j.printed > rawFactor*limit {
		j.rec.fail(outputTooLarge(limit))
	}
}

func (j *job) takeStdout(p []byte) {
	j.count(p)
	j.parse(j.stdout.Next(p))
}

func (j *job) parse(p []byte) {
	if j.rec.full() || len(p) == 0 {
		return
	}
	for _, ev := range j.parser.Stdout(p) {
		j.rec.emit(ev)
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
	j.rec.emit(api.Event{Type: api.EventStderr, Text: string(p)})
}

// finish takes the agent's part of the result.
func (j *job) finish() {
	j.parse(j.stdout.Flush())
	j.emitStderr(j.stderr.flush())
	if j.err != nil {
		j.exit = wire.Exit{JobID: j.spec.ID, Code: -1, Error: j.err.Error()}
	}
	j.agent = j.parser.Finish(j.exit)
	for _, ev := range j.agent.Events {
		j.rec.emit(ev)
	}
	if code := j.exit.Status(); j.started && code >= 0 && code <= 255 { // whatever PID 1 says
		j.exitCode = &code
	}
	for _, s := range j.exit.ArtifactsSkipped {
		j.artifacts = append(j.artifacts, api.Artifact{Name: j.rec.redactor.String(s.Name), Skipped: j.rec.redactor.String(s.Reason)})
	}
	if j.started && j.err == nil && j.exit.Error != "" {
		j.rec.warn("%s", j.exit.Error)
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
func (j *job) openIntake() *intake {
	if len(j.plan.Artifacts) == 0 {
		return nil
	}
	r, w := io.Pipe()
	in := &intake{PipeWriter: w, done: make(chan struct{})}
	go func() {
		defer close(in.done)
		hide := store.Hide{Name: j.rec.redactor.String, Search: func() store.Search { return j.rec.redactor.Search() }}
		in.kept, in.err = j.rec.entry.SaveArtifacts(r, j.plan.Limits.Artifacts, hide)
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
	j.artifacts = in.kept
	switch {
	case errors.As(in.err, &j.escape):
	case in.err != nil:
		j.rec.warn("no artifacts were kept: %v", in.err)
	}
}
