// Package wire is what the executor and PID 1 of a sandbox say to each other:
// frames over the sandbox's standard input and output, so that a backend only has
// to start the entrypoint and hand over two streams.
//
// The executor's side is a Session:
//
//	s, err := wire.Open(ctx, sandbox.Stdin(), sandbox.Stdout())
//	...
//	exit, err := s.Run(ctx, job, strings.NewReader(prompt), handlers)
//
// PID 1's side (package pid1) reads and writes the frames itself. Both ask the same
// rule which globs may name artifacts, and know the same paths inside a sandbox.
//
// Neither side trusts the other's bytes. For the executor the sandbox is hostile: a
// Session stays bounded and in order whatever arrives, and what PID 1 reports is
// believed only as far as the engine's state does not contradict it.
package wire

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// FrameType is the first byte of a frame on the wire between the executor and
// PID 1 of a sandbox. A frame is the type, the payload's length as four bytes in
// network order, and the payload.
type FrameType byte

// The frames. The direction is that of the payload.
const (
	FrameReady    FrameType = 1 // to the executor: JSON Ready, once, first of all
	FrameJob      FrameType = 2 // to the sandbox: JSON Job
	FrameStdin    FrameType = 3 // to the sandbox: bytes; an empty payload is end of file
	FrameStdout   FrameType = 4 // to the executor: bytes of the job's standard output
	FrameStderr   FrameType = 5 // to the executor: bytes of the job's standard error
	FrameSignal   FrameType = 6 // to the sandbox: JSON Signal
	FrameArtifact FrameType = 7 // to the executor: bytes of the tar stream; an empty payload ends it
	FrameExit     FrameType = 8 // to the executor: JSON Exit; the job is over, the next may come
	FrameStarted  FrameType = 9 // to the executor: JSON Started; the job's process runs
	// FrameWindow, to the executor: four bytes in network order, how many bytes of
	// standard input the job's process has taken (or can no longer take) since the
	// last one. At most StdinWindow bytes may be under way, so that a process that
	// never reads does not keep a signal from arriving.
	FrameWindow FrameType = 10
	// FrameUpdate, to the sandbox: JSON Update; replaces files while a job runs.
	FrameUpdate FrameType = 11
	// FrameUpdated, to the executor: JSON Updated, one for each update, in order.
	FrameUpdated FrameType = 12
)

// StdinWindow is the cap on bytes of standard input that the job's process has
// not taken yet.
const StdinWindow = 256 << 10

// MaxPayload is the cap on a frame's length in bytes; a longer one is an error
// on both sides. Writers cut streams into payloads of at most 64 KiB.
const MaxPayload = 8 << 20

// Bounds in bytes of an exit frame and of what an Exit and an Updated hold, so that each
// fits its frame however JSON escapes it: sixfold at most.
const (
	// exitSize bounds an exit frame, with its list of left-out artifacts.
	exitSize = 1 << 20
	// MaxErrorText bounds Exit.Error.
	MaxErrorText = 4 << 10
	// MaxSkipped bounds the names and reasons of Exit.ArtifactsSkipped.
	MaxSkipped = exitSize / 8
	// MaxUpdateError bounds Updated.Error.
	MaxUpdateError = 512
)

// ProtocolVersion is raised when a frame's meaning changes.
const ProtocolVersion = 1

// Ready is what PID 1 says once it can take a job.
type Ready struct {
	Version int `json:"version"` // ProtocolVersion
	PID     int `json:"pid"`
	UID     int `json:"uid"`
}

// A Job is one process to run in the sandbox, with all that is personal to the
// run: it arrives on the wire and is nowhere in the container's configuration.
type Job struct {
	ID   string   `json:"id"`
	Argv []string `json:"argv"`
	// Env is the whole environment of the process as NAME=value; nothing is inherited.
	Env []string `json:"env"`
	Dir string   `json:"dir"`
	// Files are written before the process starts.
	Files []File `json:"files,omitempty"`
	// Shims are names that PID 1 puts into ShimDir before the process starts, each a
	// link to its own program, which does what the name it is called by says.
	Shims []string `json:"shims,omitempty"`
	// ExtraCA holds PEM certificates that are trusted beside the system's: PID 1
	// writes system bundle plus these to CABundlePath.
	ExtraCA []byte `json:"extraCA,omitempty"`
	// Artifacts are doublestar globs, relative to Dir, of files to send back once
	// the process has ended.
	Artifacts []string `json:"artifacts,omitempty"`
	Limits    Limits   `json:"limits"`
}

// Limits bound what PID 1 itself does for a job.
type Limits struct {
	// KillGraceMS is the time from TERM to KILL in ms; 0 means 5000.
	KillGraceMS int `json:"killGraceMs,omitempty"`
	// ArtifactBytes and ArtifactFiles cap the tar stream; 0 means none is sent.
	ArtifactBytes int64 `json:"artifactBytes,omitempty"`
	ArtifactFiles int   `json:"artifactFiles,omitempty"`
}

// A File is written into the sandbox before the job's process starts. Its
// directory is made if need be; symbolic links on the way are not followed.
type File struct {
	Path    string `json:"path"` // absolute
	Mode    uint32 `json:"mode"` // permission bits; 0 means 0600
	Content []byte `json:"content"`
}

// Update asks PID 1 to write files while the job's process runs, each in one
// step, such as the next token in place of one that is about to expire.
type Update struct {
	Files []File `json:"files"`
}

// Updated says what came of an Update.
type Updated struct {
	Error string `json:"error,omitempty"` // why a file was not written
}

// Started says that the job's process runs.
type Started struct {
	JobID string `json:"jobId"`
	PID   int    `json:"pid"`
}

// Signal asks PID 1 to send a signal to the job's process group: "TERM" (KILL
// follows after the grace period), "INT" or "KILL".
type Signal struct {
	Name string `json:"name"`
}

// Valid says whether s names a signal that a job can be sent.
func (s Signal) Valid() bool { return s.Name == "TERM" || s.Name == "INT" || s.Name == "KILL" }

// Exit says how a job ended. It is PID 1's word, of which the executor believes
// only what the engine's state does not contradict.
type Exit struct {
	JobID string `json:"jobId"`
	// Code is the exit status, or -1 where a signal ended the process or it never started.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"` // such as "KILL", or the number of one without a name
	// Error says why the job could not be started or its artifacts not be sent.
	Error string `json:"error,omitempty"`
	// ArtifactsSkipped are the declared files that were left out, each with the reason.
	ArtifactsSkipped []Skipped `json:"artifactsSkipped,omitempty"`
}

// Status is the code as a shell has it: 128 and the signal's number where one ended the
// process, -1 where it never started.
func (e Exit) Status() int {
	if e.Signal == "" {
		return e.Code
	}
	if n, err := strconv.Atoi(e.Signal); err == nil {
		return 128 + n
	}
	return 128 + int(unix.SignalNum("SIG"+e.Signal))
}

// Skipped is a file that matched an artifact glob and was not sent.
type Skipped struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Paths inside every sandbox.
const (
	// CABundlePath is where the CA bundle of a job with ExtraCA is written.
	CABundlePath = "/run/sallyport/ca.crt"
	// ShimDir is where a job's Shims are.
	ShimDir = "/run/sallyport/bin"
	// WorkerDir is where the code that a run brought along is.
	WorkerDir = "/run/sallyport/worker"
)
