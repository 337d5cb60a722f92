// Package redact takes the values of secrets out of text before it is stored,
// logged or sent, however a stream is cut. A value is found as it is and, from 12 bytes
// on, in parts, in either case of its letters, and encoded in the ways in which secrets
// turn up in logs: percent, hex, base64. It is not found where other bytes split it or it
// went through another encoding, so this guards against accidents, not against an agent
// that wants to give its key away.
package redact

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
)

// minLength is the shortest value that is looked for, in bytes: a shorter one
// would turn up in ordinary text and say by its absence what it is.
const minLength = 8

// A Redactor knows secrets by name. The zero Redactor knows none. It is safe for
// concurrent use.
type Redactor struct {
	secrets []secret // the longest first
	parts   atomic.Pointer[parts]

	learning sync.Mutex // guards shared, and is held while something is learnt
	shared   bool       // parts are another Redactor's as well
}

type secret struct {
	name        string
	value, mark []byte
}

// New returns a Redactor of values by name, such as the environment variable
// that holds each. Values shorter than 8 bytes are left alone. What a value begins with
// that tells its issuer ("sk-ant-api03-") is no secret by itself.
func New(values map[string]string) *Redactor {
	r := new(Redactor)
	for name, value := range values {
		if len(value) >= minLength {
			r.secrets = append(r.secrets, secret{name, []byte(value), []byte("[" + name + " redacted]")})
		}
	}
	slices.SortFunc(r.secrets, func(a, b secret) int {
		if d := len(b.value) - len(a.value); d != 0 {
			return d
		}
		return bytes.Compare(a.mark, b.mark)
	})
	for _, x := range r.secrets {
		r.Learn(x.name, string(x.value))
	}
	return r
}

// Fork returns a Redactor that knows what r knows, and learns for itself.
func (r *Redactor) Fork() *Redactor {
	r.learning.Lock()
	defer r.learning.Unlock()
	r.shared = true
	f := &Redactor{secrets: r.secrets, shared: true}
	f.parts.Store(r.parts.Load())
	return f
}

// String returns s with every secret replaced by its name.
func (r *Redactor) String(s string) string {
	if r.parts.Load() == nil && len(r.secrets) == 0 {
		return s
	}
	st := r.Stream()
	return string(append(st.Next([]byte(s)), st.Flush()...))
}

// A Stream redacts a text that arrives in pieces. It holds back at most the
// length of the longest secret, and only bytes that may be the beginning of one, or of a
// part of one.
type Stream struct {
	r    *Redactor
	held []byte
	rest remainder // what the search for parts holds back

	found bool // there was a secret, whole
}

// Stream returns a new Stream.
func (r *Redactor) Stream() *Stream { return &Stream{r: r} }

// Next takes the next piece and returns what is certain of the text so far. The
// result is valid until p changes or the next call.
func (s *Stream) Next(p []byte) []byte {
	return s.rest.next(s.r.parts.Load(), s.whole(p))
}

// whole takes out the values that are there as they are.
func (s *Stream) whole(p []byte) []byte {
	if len(s.r.secrets) == 0 {
		return p
	}
	text := p
	if len(s.held) > 0 {
		text = append(s.held, p...)
		s.held = nil
	}
	var out []byte
	for {
		at, x, certain := s.r.find(text)
		if x == nil {
			keep := s.r.pending(text)
			s.held = bytes.Clone(text[keep:])
			return join(out, text[:keep])
		}
		if !certain {
			s.held = bytes.Clone(text[at:])
			return join(out, text[:at])
		}
		out = append(append(out, text[:at]...), x.mark...)
		text = text[at+len(x.value):]
		s.found = true
	}
}

// Flush returns what was held back; the text has ended.
func (s *Stream) Flush() []byte {
	parts := s.r.parts.Load()
	out := bytes.Clone(s.rest.next(parts, s.flushWhole()))
	return append(out, s.rest.flush(parts)...)
}

func (s *Stream) flushWhole() []byte {
	var out []byte
	text := s.held
	s.held = nil
	for {
		at, x, _ := s.r.find(text)
		if x == nil {
			return append(out, text...)
		}
		out = append(append(out, text[:at]...), x.mark...)
		text = text[at+len(x.value):]
		s.found = true
	}
}

// A Search looks for secrets in what is written to it.
type Search struct{ stream *Stream }

// Search returns a new Search.
func (r *Redactor) Search() *Search { return &Search{r.Stream()} }

// Write never fails.
func (s *Search) Write(p []byte) (int, error) {
	s.stream.Next(p)
	return len(p), nil
}

// Found reports whether there was a secret, or a part of one. All has been written.
func (s *Search) Found() bool {
	s.stream.Flush()
	return s.stream.found || s.stream.rest.found
}

// join returns a followed by b without a copy where a is empty.
func join(a, b []byte) []byte {
	if len(a) == 0 {
		return b
	}
	return append(a, b...)
}

// find returns where the first secret in text begins and which it is, the
// longest where several begin there. It is not certain where text ends inside a
// longer one that begins at the same place.
func (r *Redactor) find(text []byte) (at int, found *secret, certain bool) {
	at = len(text)
	for i := range r.secrets {
		x := &r.secrets[i]
		if j := bytes.Index(text[:min(len(text), at+len(x.value))], x.value); j >= 0 && (found == nil || j < at) {
			at, found = j, x
		}
	}
	if found == nil {
		return 0, nil, true
	}
	for _, x := range r.secrets {
		if len(x.value) > len(found.value) && len(x.value) > len(text)-at && bytes.HasPrefix(x.value, text[at:]) {
			return at, found, false
		}
	}
	return at, found, true
}

// pending returns where the longest end of text begins that may be the
// beginning of a secret.
func (r *Redactor) pending(text []byte) int {
	first := len(text)
	for _, x := range r.secrets {
		for i := max(0, len(text)-len(x.value)+1); i < first; i++ {
			if bytes.HasPrefix(x.value, text[i:]) {
				first = i
			}
		}
	}
	return first
}
