package pid1

import (
	"io"
	"strings"
	"testing"

	"sallyport/entrypoint/wire"
	"sallyport/internal/output"
)

func TestInputIsBounded(t *testing.T) {
	in := newInput()
	for range wire.StdinWindow / wire.ChunkSize {
		if err := in.push(make([]byte, wire.ChunkSize)); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.push([]byte{0}); err == nil {
		t.Error("more than the window is queued")
	}
	// What the process is being given still counts.
	room := make([]byte, 100)
	if b, ok := in.take(room); len(b) != 100 || !ok {
		t.Fatalf("%d bytes, %v", len(b), ok)
	}
	if err := in.push([]byte{0}); err == nil {
		t.Error("more than the window is queued while bytes are being written")
	}
}

func TestInputEnds(t *testing.T) {
	in := newInput()
	for _, b := range []string{"a", "b", ""} {
		if err := in.push([]byte(b)); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.push([]byte("c")); err == nil {
		t.Error("input after its end is taken")
	}
	room := make([]byte, 10)
	if b, ok := in.take(room); string(b) != "ab" || !ok {
		t.Errorf("%q, %v", b, ok)
	}
	if b, ok := in.take(room); len(b) > 0 || ok {
		t.Errorf("%q, %v after the end", b, ok)
	}
	in.stop()
	if err := in.push([]byte("late")); err != nil {
		t.Errorf("input for a process that has just ended: %v", err)
	}
}

// TestFeedDropsWhatNobodyReads: the executor is granted bytes that the process
// did not want, or it would wait for ever.
func TestFeedDropsWhatNobodyReads(t *testing.T) {
	var out output.Buffer
	p := newPeer(&out)
	in := newInput()
	r, w := io.Pipe()
	r.Close()
	in.push(make([]byte, 50_000))
	in.push(nil)
	in.feed(w, p)
	granted := 0
	for frames := wire.NewReader(strings.NewReader(out.String())); ; {
		f, err := frames.Next()
		if err == io.EOF {
			break
		}
		if err != nil || f.Type != wire.FrameWindow {
			t.Fatalf("frame %+v, %v", f, err)
		}
		granted += int(f.Payload[2])<<8 | int(f.Payload[3])
	}
	if granted != 50_000 {
		t.Errorf("%d bytes granted of 50000", granted)
	}
}
