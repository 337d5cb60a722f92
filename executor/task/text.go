package task

import (
	"sync"
	"unicode/utf8"

	"sallyport/executor/redact"
)

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
