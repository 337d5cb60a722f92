package sniproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
)

// A tunnel copies between two connections until both directions have ended. The
// end of one is passed on as a half-close while the other goes on; a connection
// that breaks breaks the other one too.
type tunnel struct {
	client, up *net.TCPConn
	// took is called after each piece that was passed on, with its direction and
	// its bytes, from two goroutines; if it returns false, the tunnel is cut. May
	// be nil.
	took func(up bool, n int) (ok bool)
	// over is called when both directions have ended and both connections are
	// closed.
	over func()

	sent, received int64        // bytes passed on, for over to read
	ended          atomic.Int32 // directions that came to their end in good order
	gone           atomic.Int32 // directions that came to any end
}

// start starts both directions, each on a goroutine of its own. Stacks grow and
// do not soon shrink: that of the goroutine which has read, judged and dialled
// would be several times what a direction needs, for hours, so it is left to end.
func (t *tunnel) start(wg *sync.WaitGroup) {
	wg.Go(t.upward)
	wg.Go(t.downward)
}

func (t *tunnel) upward() {
	t.sent = t.copy(t.up, t.client)
	t.leave()
}

func (t *tunnel) downward() {
	t.received = t.copy(t.client, t.up)
	t.leave()
}

// leave calls over from the direction that ends last.
func (t *tunnel) leave() {
	if t.gone.Add(1) == 2 {
		t.over()
	}
}

// errCut ends a direction in which took has refused to go on.
var errCut = errors.New("cut")

// copy is one direction.
func (t *tunnel) copy(dst, src *net.TCPConn) int64 {
	n, err := t.move(dst, src)
	if err == nil {
		err = dst.CloseWrite()
	}
	switch {
	case err != nil:
		reset(t.client)
		reset(t.up)
	case t.ended.Add(1) == 2:
		t.client.Close()
		t.up.Close()
	case awaitFault(src):
		reset(t.client)
		reset(t.up)
	}
	return n
}

// move passes on what comes from src until its end: in the kernel, or through a
// buffer where that cannot be.
func (t *tunnel) move(dst, src *net.TCPConn) (total int64, err error) {
	p, err := newPump(dst, src)
	if err != nil {
		return 0, err
	}
	for {
		n, err := p.next()
		if err == errNoSplice {
			n, err = p.nextBuffered(dst, src)
		}
		total += int64(n)
		if n > 0 && t.took != nil && !t.took(src == t.client, n) {
			p.drop()
			return total, errCut
		}
		switch {
		case err == io.EOF:
			return total, nil
		case err != nil:
			return total, err
		}
	}
}

// awaitFault waits on a connection that has no more to read. It returns true
// once the kernel finds the connection broken, by a reset or because keep-alive
// went unanswered, and false when it is closed or its deadline passes. Without
// it, a client that closed both ways would keep a tunnel to a silent upstream.
func awaitFault(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	broken := false
	err = raw.Read(func(fd uintptr) bool {
		soerr, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
		broken = err != nil || soerr != 0
		return broken
	})
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		return true
	}
	return broken
}
