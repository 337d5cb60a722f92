package pid1

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"sallyport/entrypoint/wire"
)

// An input is a job's standard input on its way from the wire to the process.
// It holds at most StdinWindow bytes.
type input struct {
	mu    sync.Mutex // guards what follows
	queue []byte
	held  int // bytes queued or being written
	eof   bool
	over  bool
	wake  chan struct{}
}

func newInput() *input { return &input{wake: make(chan struct{}, 1)} }

// push queues what came over the wire; it never blocks. An error is the peer's.
func (in *input) push(b []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.over:
		return nil
	case in.eof:
		return errors.New("standard input after its end")
	case in.held+len(b) > wire.StdinWindow:
		return fmt.Errorf("more than %d bytes of standard input under way", wire.StdinWindow)
	}
	in.eof = len(b) == 0
	in.held += len(b)
	in.queue = append(in.queue, b...)
	in.rouse()
	return nil
}

func (in *input) rouse() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// stop makes feed return.
func (in *input) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
	in.queue = nil
	in.rouse()
}

// take waits for bytes; ok is false at the end.
func (in *input) take(room []byte) (b []byte, ok bool) {
	for {
		in.mu.Lock()
		n := copy(room, in.queue)
		in.queue = in.queue[n:]
		end := in.over || in.eof
		in.mu.Unlock()
		if n > 0 {
			return room[:n], true
		}
		if end {
			return nil, false
		}
		<-in.wake
	}
}

// feed writes the input to the process and grants the executor as many bytes
// again. What a process does not want to read is dropped.
func (in *input) feed(to io.WriteCloser, executor *peer) {
	defer to.Close()
	room := make([]byte, 32<<10)
	var closed error
	for {
		b, ok := in.take(room)
		if !ok {
			return
		}
		if closed == nil {
			_, closed = to.Write(b)
		}
		in.mu.Lock()
		in.held -= len(b)
		in.mu.Unlock()
		if executor.write(wire.FrameWindow, wire.WindowPayload(len(b))) != nil {
			return
		}
	}
}
