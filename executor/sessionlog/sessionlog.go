// Package sessionlog writes a run's session log: one JSON object a line, in the
// envelopes of the original contract, which are those of Claude's SDK, at
// <sessionsDir>/projects/<cwd with / replaced by ->/<sessionId>.jsonl.
//
//	l := sessionlog.New(sessionsDir, cwd, executionID)
//	defer l.Close()
//	l.Prompt(prompt)
//	l.Event(e) // each, in order
//	l.Result(r)
//
// The file is made when the agent has named its session, or under the
// execution's identifier where it has not by the time it says anything, or where
// the name it gives is no file name or already taken: an agent can neither leave the
// directory nor write to the log of another run. A file is never opened twice.
// Directories are 0750 and files 0640, less what the umask takes, owned by the owner of sessionsDir if the
// process may give them away.
//
// Limits: what is logged is as long as the events are; a failed write ends the
// log, and the first error is what every later call returns.
package sessionlog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"sallyport/executor/api"
	"sallyport/internal/fileowner"
)

// A Log is one run's session log. It is used from one goroutine.
type Log struct {
	dir, cwd, execution string

	now     func() time.Time
	file    *os.File
	session string
	model   string
	prompt  *string // not yet written
	group   *group  // the assistant message that is being collected
	err     error
}

// New makes a log. Nothing is written before the first call of Event or Result. dir exists
// already; cwd is the absolute path that names the log's folder; execution
// identifies the run.
func New(dir, cwd, execution string) *Log {
	return &Log{dir: dir, cwd: cwd, execution: execution, now: time.Now}
}

// Prompt logs what the agent is asked, as the log's first line.
func (l *Log) Prompt(text string) { l.prompt = &text }

// Close closes the file. It returns the first error of all calls.
func (l *Log) Close() error {
	l.flush()
	if l.file != nil {
		if err := l.file.Close(); l.err == nil && err != nil {
			l.err = fmt.Errorf("closing the session log: %w", err)
		}
		l.file = nil
	}
	return l.err
}

// write appends one envelope, making the file if need be.
func (l *Log) write(e envelope) {
	if l.err == nil && l.file == nil {
		l.err = l.create()
	}
	if l.err != nil {
		return
	}
	if l.prompt != nil {
		first := envelope{Type: "user", Timestamp: e.Timestamp, Message: &message{Role: "user", Content: *l.prompt}}
		l.prompt = nil
		l.append(first)
	}
	l.append(e)
}

func (l *Log) append(e envelope) {
	e.SessionID = l.session
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(e)
	if err == nil {
		_, err = l.file.WriteString(b.String())
	}
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("writing the session log: %w", err)
	}
}

var fileName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// create makes the file below dir. Whoever owns a directory on the way may have put
// links there: os.Root keeps the path below dir, and O_EXCL takes no link.
func (l *Log) create() error {
	root, err := os.OpenRoot(l.dir)
	if err != nil {
		return fmt.Errorf("opening the sessions directory: %w", err)
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("looking at the sessions directory: %w", err)
	}
	owner := fileowner.Of(info)
	folder := "projects/" + slug(l.cwd)
	for _, dir := range []string{"projects", folder} {
		if err := makeDir(root, dir, owner); err != nil {
			return fmt.Errorf("making the session log's directory: %w", err)
		}
	}
	names := []string{l.execution}
	if fileName.MatchString(l.session) && strings.Trim(l.session, ".") != "" {
		names = []string{l.session, l.execution}
	}
	for _, name := range names {
		path := folder + "/" + name + ".jsonl"
		l.file, err = root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND|syscall.O_NOFOLLOW, 0o640)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			break
		}
		_ = owner.Give(l.file.Chown) // a process that may not keeps it, which harms nobody
		l.session = name
		return nil
	}
	l.file = nil
	return fmt.Errorf("making the session log: %w", err)
}

// maxSlug keeps a folder's name below what file systems take, 255 bytes.
const maxSlug = 200

// slug is the folder's name for a working directory.
func slug(cwd string) string {
	s := strings.ReplaceAll(cwd, "/", "-")
	if s == "" || strings.Trim(s, ".") == "" {
		return "-" + s
	}
	if len(s) > maxSlug {
		sum := sha256.Sum256([]byte(cwd))
		s = s[:maxSlug-17] + "-" + hex.EncodeToString(sum[:8])
	}
	return s
}

// makeDir makes a directory unless it is there. What is there must be one, not a link to one.
func makeDir(root *os.Root, dir string, o fileowner.Owner) error {
	err := root.Mkdir(dir, 0o750)
	if err == nil {
		_ = o.Give(func(uid, gid int) error { return root.Lchown(dir, uid, gid) }) // as with the file
		return nil
	}
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := root.Lstat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is not a directory", dir)
	}
	return err
}

// stamp is an envelope's time.
func (l *Log) stamp(t time.Time) string {
	if t.IsZero() {
		t = l.now()
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// Event logs what the original's log has of an event: the session, whole
// assistant messages, tool results, retries, warnings, standard error. The rest
// it leaves out.
func (l *Log) Event(e api.Event) error {
	switch e.Type {
	case api.EventSession:
		l.begin(e)
	case api.EventText, api.EventThinking, api.EventToolStart, api.EventUsage:
		l.collect(e)
	case api.EventToolEnd:
		l.flush()
		l.toolResult(e)
	case api.EventRetry:
		l.flush()
		l.apiError(e.Time, e.Text)
	case api.EventWarning, api.EventStderr:
		l.flush()
		l.write(envelope{Type: "system", Subtype: string(e.Type), Content: e.Text, Timestamp: l.stamp(e.Time)})
	}
	return l.err
}

func (l *Log) begin(e api.Event) {
	if l.file == nil {
		l.session = e.SessionID
	}
	l.model = e.Model
	l.write(envelope{Type: "system", Subtype: "init", Model: e.Model, CWD: l.cwd, Timestamp: l.stamp(e.Time)})
}

func (l *Log) apiError(at time.Time, text string) {
	l.write(envelope{Type: "assistant", IsAPIError: true, Error: text, Timestamp: l.stamp(at)})
}
