package sniproxy

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// pipeBytes is the room that a pipe is given. The kernel counts it in pages,
	// one for each piece of a segment, however short the piece.
	pipeBytes = 1 << 20
	// maxIdlePipes bounds the empty pipes that are kept for the next bytes. A
	// pipe is in use only while bytes move, so few serve many tunnels.
	maxIdlePipes = 32
)

// A pipe is the buffer in the kernel through which spliced bytes pass.
type pipe struct{ r, w int }

// newPipe makes a pipe. The kernel gives it less room than pipeBytes where the
// user has many already.
func newPipe() (pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, fmt.Errorf("making a pipe: %w", err)
	}
	_, _ = unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeBytes) // only slower without
	return pipe{r: fds[0], w: fds[1]}, nil
}

func (p pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// pipes are the empty ones of all tunnels.
var pipes pipePool

// A pipePool keeps a bounded number of empty pipes.
type pipePool struct {
	mu   sync.Mutex // guards idle
	idle []pipe
}

func (pp *pipePool) take() (pipe, error) {
	pp.mu.Lock()
	if n := len(pp.idle); n > 0 {
		p := pp.idle[n-1]
		pp.idle = pp.idle[:n-1]
		pp.mu.Unlock()
		return p, nil
	}
	pp.mu.Unlock()
	return newPipe()
}

// give takes back a pipe, which must be empty: the next tunnel's bytes would
// come after what is in it.
func (pp *pipePool) give(p pipe) {
	pp.mu.Lock()
	if len(pp.idle) < maxIdlePipes {
		pp.idle = append(pp.idle, p)
		pp.mu.Unlock()
		return
	}
	pp.mu.Unlock()
	p.close()
}
