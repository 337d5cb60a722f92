package run

import (
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"

	"sallyport/executor/api"
	"sallyport/executor/redact"
	"sallyport/executor/store"
)

// rawFactor is how many times the output limit an agent may print in all,
// counted with what its adapter drops unread.
const rawFactor = 64

// stage notes that the run has reached a stage.
func (x *execution) stage(name string) {
	x.emit(api.Event{Type: api.EventStage, Stage: name})
}

// warn tells the caller something that does not end the run.
func (x *execution) warn(format string, args ...any) {
	x.emit(api.Event{Type: api.EventWarning, Text: x.redactor.String(fmt.Sprintf(format, args...))})
}

// emit appends an event to the run's log. Once the log is full only what the
// executor and the gate say is added, which is bounded by itself.
func (x *execution) emit(ev api.Event) {
	if fromAgent(ev.Type) && x.full() {
		return
	}
	switch err := x.entry.Append(ev); {
	case errors.Is(err, store.ErrFinished):
		return
	case err != nil:
		// A run of which nothing can be recorded must not go on.
		x.fail(&api.Error{Code: api.CodeLost, Message: "the executor could not record the run's events: " + err.Error(), Retryable: true})
		return
	}
	if x.full() {
		x.fail(outputTooLarge(x.plan.Limits.OutputBytes))
	}
	x.sessions.add(ev)
}

func (x *execution) full() bool { return x.entry.Size() > x.plan.Limits.OutputBytes }

func fromAgent(t api.EventType) bool {
	switch t {
	case api.EventStage, api.EventWarning, api.EventEgress, api.EventResult:
		return false
	}
	return true
}

func outputTooLarge(limit int64) *api.Error {
	return &api.Error{
		Code:    api.CodeOutputTooLarge,
		Message: fmt.Sprintf("the run's output was cut: it went over its limit of %d bytes", limit),
		Details: map[string]any{"limitBytes": limit},
	}
}

// A text is one of the process's streams on its way to events: redacted, and cut
// only between characters.
type text struct {
	redacted *redact.Stream
	rest     []byte // the beginning of a character
}

// next takes the next bytes and returns those that are ready, valid until the
// next call.
func (t *text) next(p []byte) []byte {
	p = t.redacted.Next(p)
	if len(t.rest) > 0 {
		p = append(t.rest, p...)
		t.rest = nil
	}
	n := whole(p)
	t.rest = append(t.rest, p[n:]...)
	return p[:n]
}

// flush returns what is left at the end.
func (t *text) flush() []byte {
	rest := append(t.rest, t.redacted.Flush()...)
	t.rest = nil
	return rest
}

// whole is the length of p without a character that has only begun at its end.
func whole(p []byte) int {
	for i := len(p) - 1; i >= 0 && i >= len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if !utf8.FullRune(p[i:]) {
				return i
			}
			break
		}
	}
	return len(p)
}

// A tail keeps the last bytes of a stream.
type tail struct {
	mu    sync.Mutex // guards bytes
	bytes []byte
}

const tailLength = 4 << 10

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, p...)
	if extra := len(t.bytes) - tailLength; extra > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[extra:]...)
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.bytes)
}
