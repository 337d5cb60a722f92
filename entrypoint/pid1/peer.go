package pid1

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"sallyport/entrypoint/wire"
)

// A peer is the executor as PID 1 writes to it. What cannot be written ends Main.
type peer struct {
	out    *wire.Writer
	broken chan error // why Main must end; takes the first reason
}

func newPeer(w io.Writer) *peer {
	return &peer{out: wire.NewWriter(w), broken: make(chan error, 1)}
}

// write sends a frame; a failure ends Main.
func (p *peer) write(t wire.FrameType, payload []byte) error {
	err := p.out.Write(t, payload)
	if err != nil {
		p.fail(fmt.Errorf("write to the executor: %w", err))
	}
	return err
}

// fail ends Main because of err.
func (p *peer) fail(err error) {
	select {
	case p.broken <- err:
	default:
	}
}

func (p *peer) writeJSON(t wire.FrameType, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame of type %d: %w", t, err)
	}
	return p.write(t, payload)
}

// Write makes a peer the writer of the artifact stream.
func (p *peer) Write(b []byte) (int, error) {
	n := 0
	for chunk := range slices.Chunk(b, wire.ChunkSize) {
		if err := p.write(wire.FrameArtifact, chunk); err != nil {
			return n, err
		}
		n += len(chunk)
	}
	return n, nil
}
