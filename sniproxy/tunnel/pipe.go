package tunnel

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// pipeBytes is the room that a pipe is given. The kernel counts it in pages,
	// one for each piece of a segment, however short the piece.
	pipeBytes = 1 << 20
	// maxCellPipes bounds the pipes that a cell has in use, which those of its tunnels
	// keep that nobody reads from: beyond it bytes are copied. It is a quarter of all
	// that a user may have (fs.pipe-user-pages-soft, 64 MiB by default). Smaller ones
	// cost bulk a fifth more of the processor.
	maxCellPipes = 16
	// maxIdlePipes bounds the empty pipes that are kept for the next bytes. A
	// pipe is in use only while bytes move, so few serve many tunnels.
	maxIdlePipes = 32
)

// A pipe is the buffer in the kernel through which spliced bytes pass.
type pipe struct{ r, w int }

// newPipe makes a pipe. Where the user has so many that the kernel gives it no such
// room, it is none: to copy is faster than a pipe of two pages.
func newPipe() (pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return pipe{}, fmt.Errorf("making a pipe: %w", err)
	}
	p := pipe{r: fds[0], w: fds[1]}
	if _, err := unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeBytes); err != nil {
		p.close()
		return pipe{}, fmt.Errorf("making room in a pipe: %w", err)
	}
	return p, nil
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
