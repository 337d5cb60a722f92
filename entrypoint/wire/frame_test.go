package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func frame(t FrameType, payload string) string {
	return string(binary.BigEndian.AppendUint32([]byte{byte(t)}, uint32(len(payload)))) + payload
}

func TestReader(t *testing.T) {
	head := func(t FrameType, n uint32) string {
		return string(binary.BigEndian.AppendUint32([]byte{byte(t)}, n))
	}
	tests := []struct {
		name  string
		in    string
		n     int    // frames before the end
		end   error  // io.EOF and such
		wrong string // or a part of the error's text
	}{
		{name: "nothing", end: io.EOF},
		{name: "two", in: frame(FrameStdout, "a") + frame(FrameStdin, ""), n: 2, end: io.EOF},
		{name: "largest chunk", in: frame(FrameStdout, strings.Repeat("x", ChunkSize)), n: 1, end: io.EOF},
		{name: "cut header", in: frame(FrameStdout, "a") + "\x04\x00", n: 1, end: io.ErrUnexpectedEOF},
		{name: "cut payload", in: head(FrameStdout, 3) + "ab", end: io.ErrUnexpectedEOF},
		{name: "no payload", in: head(FrameStdout, 3), end: io.ErrUnexpectedEOF},
		{name: "type 0", in: head(0, 0), wrong: "unknown frame type 0"},
		{name: "type 13", in: head(13, 0), wrong: "unknown frame type 13"},
		{name: "long update", in: head(FrameUpdate, updateSize+1), wrong: "more than"},
		{name: "long updated", in: head(FrameUpdated, noteSize+1), wrong: "more than"},
		{name: "long chunk", in: head(FrameStdout, ChunkSize+1), wrong: "more than 65536"},
		{name: "long job", in: head(FrameJob, MaxPayload+1), wrong: "more than 8388608"},
		{name: "long window", in: head(FrameWindow, 5), wrong: "more than 4"},
		{name: "longest length", in: head(FrameExit, 1<<32-1), wrong: "more than 1048576"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(iotest.OneByteReader(strings.NewReader(tt.in)))
			var err error
			n := -1
			for err == nil {
				_, err = r.Next()
				n++
			}
			if n != tt.n || tt.end != nil && err != tt.end || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%d frames, then %v; want %d, then %v %s", n, err, tt.n, tt.end, tt.wrong)
			}
		})
	}
}

// TestReaderMemory: a length alone makes a reader hold nothing, and a long
// payload is let go with the next frame.
func TestReaderMemory(t *testing.T) {
	r := NewReader(strings.NewReader(string([]byte{byte(FrameJob), 0, 0x80, 0, 0})))
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) || cap(r.buf) > ChunkSize {
		t.Errorf("%v, %d bytes held for a payload that never came", err, cap(r.buf))
	}
	r = NewReader(strings.NewReader(frame(FrameJob, strings.Repeat("x", 1<<20)) + frame(FrameStdin, "y")))
	for range 2 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(r.buf) > ChunkSize {
		t.Errorf("%d bytes held after a long payload", cap(r.buf))
	}
}

// A countingWriter counts its calls.
type countingWriter struct {
	bytes.Buffer
	calls int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.calls++
	return w.Buffer.Write(p)
}

func TestWriter(t *testing.T) {
	var out countingWriter
	w := NewWriter(&out)
	data := strings.Repeat("0123456789", 20_000)
	n, err := io.WriteString(w.Stream(FrameStdout), data)
	if n != len(data) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if err := w.WriteJSON(FrameSignal, Signal{Name: "TERM"}); err != nil {
		t.Fatal(err)
	}
	if out.calls != 5 {
		t.Errorf("%d writes for 5 frames", out.calls)
	}
	var got strings.Builder
	r := NewReader(&out)
	for {
		f, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if f.Type == FrameStdout {
			got.Write(f.Payload)
		}
	}
	if got.String() != data {
		t.Errorf("%d bytes came back of %d", got.Len(), len(data))
	}
	for _, err := range []error{
		w.Write(FrameStdout, make([]byte, ChunkSize+1)),
		w.Write(FrameJob, make([]byte, MaxPayload+1)),
		w.Write(99, nil),
		w.WriteJSON(FrameSignal, func() {}),
	} {
		if err == nil {
			t.Error("a frame that no reader takes is written")
		}
	}
	if out.Len() != 0 {
		t.Errorf("%d bytes of refused frames are written", out.Len())
	}
}
