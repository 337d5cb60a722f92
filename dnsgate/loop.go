package dnsgate

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"sallyport/internal/evloop"
)

// A Loop answers the UDP queries of any number of cells, one batch of one cell
// after another, so that no cell waits for more than a batch of each other one.
// An answer is made from memory in microseconds: one goroutine does for all.
type Loop struct {
	events *evloop.Loop
	batch  *batch
}

// NewLoop starts a loop that has no cells yet. The caller closes it.
func NewLoop() (*Loop, error) {
	events, err := evloop.New(nil)
	if err != nil {
		return nil, fmt.Errorf("dnsgate: %w", err)
	}
	go events.Run()
	return &Loop{events: events, batch: newBatch()}, nil
}

// Close ends the loop and returns when it has ended. The cells that it still has
// are not served any more, and their Serve fails.
func (l *Loop) Close() { l.events.Stop() }

// serve answers the queries of c on pc, which it closes, until ctx ends or
// reading fails. When it returns, nothing of c is under way.
func (l *Loop) serve(ctx context.Context, c *cell, pc *net.UDPConn) error {
	s, err := newSocket(pc, c.newAnswerer(), l.batch)
	if err != nil {
		return err
	}
	l.events.Post(func() {
		if err := l.events.Register(s.fd, unix.EPOLLIN, s); err != nil {
			s.fail(fmt.Errorf("dnsgate: watch a socket: %w", err))
		}
	})
	defer l.close(s)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-s.failed:
		return err
	case <-l.events.Ended():
		return errors.New("dnsgate: the loop is closed")
	}
}

// close closes a socket when no batch of it is under way.
func (l *Loop) close(s *socket) {
	closed := make(chan struct{})
	l.events.Post(func() {
		l.events.Forget(s.fd)
		unix.Close(s.fd)
		close(closed)
	})
	select {
	case <-closed:
		return
	case <-l.events.Ended():
	}
	select {
	case <-closed:
	default: // it had ended before
		unix.Close(s.fd)
	}
}
