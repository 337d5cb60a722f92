package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	headerSize = 5
	// ChunkSize is the longest payload of a frame of a stream, in bytes.
	ChunkSize = 64 << 10
	// updateSize bounds an update frame.
	updateSize = 256 << 10
	// noteSize bounds the other JSON frames.
	noteSize = 4 << 10
)

// A Frame is one message on the wire.
type Frame struct {
	Type    FrameType
	Payload []byte
}

// cap is the longest payload of this type in bytes, and false for a type that
// does not exist.
func (t FrameType) cap() (int, bool) {
	switch t {
	case FrameJob:
		return MaxPayload, true
	case FrameStdin, FrameStdout, FrameStderr, FrameArtifact:
		return ChunkSize, true
	case FrameExit:
		return exitSize, true
	case FrameUpdate:
		return updateSize, true
	case FrameReady, FrameSignal, FrameStarted, FrameUpdated:
		return noteSize, true
	case FrameWindow:
		return 4, true
	}
	return 0, false
}

// check says whether a frame of n bytes may exist.
func (t FrameType) check(n uint32) error {
	limit, ok := t.cap()
	if !ok {
		return fmt.Errorf("unknown frame type %d", t)
	}
	if uint64(n) > uint64(limit) {
		return fmt.Errorf("frame of type %d has %d bytes, more than %d", t, n, limit)
	}
	return nil
}

// A Reader reads frames from a peer that it does not trust: its memory grows
// only with bytes that arrived, up to MaxPayload.
type Reader struct {
	r      io.Reader
	header [headerSize]byte
	buf    []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next returns the next frame. Its payload is valid until the next call. The
// error is io.EOF only at a frame's border; inside one it is io.ErrUnexpectedEOF.
// An unknown type or a length over the type's cap is an error before any byte of
// the payload is read.
func (r *Reader) Next() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.header[:]); err != nil {
		return Frame{}, err
	}
	t, n := FrameType(r.header[0]), binary.BigEndian.Uint32(r.header[1:])
	if err := t.check(n); err != nil {
		return Frame{}, err
	}
	if cap(r.buf) > ChunkSize { // one big job must not be held for a session's length
		r.buf = nil
	}
	r.buf = r.buf[:0]
	for len(r.buf) < int(n) {
		if err := r.more(min(int(n)-len(r.buf), ChunkSize)); err != nil {
			return Frame{}, err
		}
	}
	return Frame{Type: t, Payload: r.buf}, nil
}

// more appends the next n bytes to the buffer.
func (r *Reader) more(n int) error {
	old := len(r.buf)
	if cap(r.buf) < old+n {
		grown := make([]byte, old, max(2*cap(r.buf), old+n))
		copy(grown, r.buf)
		r.buf = grown
	}
	r.buf = r.buf[:old+n]
	_, err := io.ReadFull(r.r, r.buf[old:])
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// A Writer writes frames, each with one Write of the underlying writer. It is
// safe for concurrent use.
type Writer struct {
	w io.Writer

	mu  sync.Mutex // guards buf and the order of writes
	buf []byte
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes one frame. A payload over the type's cap is an error and writes
// nothing.
func (w *Writer) Write(t FrameType, payload []byte) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("frame of type %d has %d bytes, more than %d", t, len(payload), MaxPayload)
	}
	if err := t.check(uint32(len(payload))); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = append(w.buf[:0], byte(t))
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(payload)))
	w.buf = append(w.buf, payload...)
	_, err := w.w.Write(w.buf)
	if cap(w.buf) > 2*ChunkSize {
		w.buf = nil
	}
	return err
}

// WriteJSON writes v as a frame's payload.
func (w *Writer) WriteJSON(t FrameType, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame of type %d: %w", t, err)
	}
	return w.Write(t, payload)
}

// Stream returns a writer that cuts what it is given into frames of type t.
func (w *Writer) Stream(t FrameType) io.Writer { return stream{w, t} }

type stream struct {
	w *Writer
	t FrameType
}

func (s stream) Write(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		c := min(len(p)-n, ChunkSize)
		if err := s.w.Write(s.t, p[n:n+c]); err != nil {
			return n, err
		}
		n += c
	}
	return n, nil
}

// WindowPayload is the payload of a window frame that grants n bytes.
func WindowPayload(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
