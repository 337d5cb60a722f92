package dnsgate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// A Loop answers the UDP queries of any number of cells, one batch of one cell
// after another, so that no cell waits for more than a batch of each other one.
// An answer is made from memory in microseconds: one goroutine does for all.
//
// It waits with an epoll of its own. The runtime's poller would cost each query
// a failed read, a change of goroutine and, where the program was idle, more
// threads that wake up.
type Loop struct {
	epoll int // descriptor
	stop  int // descriptor: an eventfd that ends the loop
	done  chan struct{}

	mu      sync.Mutex // guards what follows
	sockets map[int32]*socket
	last    int32 // the id of the newest
}

// stopID is the id of Loop.stop; those of sockets are positive.
const stopID = 0

// NewLoop starts a loop that has no cells yet. The caller closes it.
func NewLoop() (*Loop, error) {
	l := &Loop{done: make(chan struct{}), sockets: make(map[int32]*socket)}
	var err error
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("dnsgate: epoll: %w", err)
	}
	if l.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(l.epoll)
		return nil, fmt.Errorf("dnsgate: eventfd: %w", err)
	}
	if err := l.watch(l.stop, stopID); err != nil {
		unix.Close(l.epoll)
		unix.Close(l.stop)
		return nil, err
	}
	go l.run()
	return l, nil
}

// Close ends the loop and returns when it has ended. The cells that it still has
// are not served any more, and their Serve fails.
func (l *Loop) Close() error {
	_, err := unix.Write(l.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	if err != nil {
		return fmt.Errorf("dnsgate: end the loop: %w", err)
	}
	<-l.done
	unix.Close(l.stop)
	unix.Close(l.epoll)
	return nil
}

func (l *Loop) watch(fd int, id int32) error {
	err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: id})
	if err != nil {
		return fmt.Errorf("dnsgate: watch a socket: %w", err)
	}
	return nil
}

// run serves what is ready until the loop is closed.
func (l *Loop) run() {
	defer close(l.done)
	b, events := newBatch(), make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(l.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			l.fail(fmt.Errorf("dnsgate: wait for queries: %w", err))
			return
		}
		for i := range max(n, 0) {
			if events[i].Fd == stopID {
				return
			}
			if s := l.socket(events[i].Fd); s != nil {
				s.serve(b)
			}
		}
	}
}

func (l *Loop) socket(id int32) *socket {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sockets[id]
}

// fail tells every cell of an error of the loop itself.
func (l *Loop) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sockets {
		s.fail(err)
	}
}

// serve answers the queries of c on pc, which it closes, until ctx ends or
// reading fails. When it returns, nothing of c is under way.
func (l *Loop) serve(ctx context.Context, c *cell, pc *net.UDPConn) error {
	s, err := newSocket(pc, c.newAnswerer())
	if err != nil {
		return err
	}
	id, err := l.add(s)
	if err != nil {
		unix.Close(s.fd)
		return err
	}
	defer l.remove(id, s)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-s.failed:
		return err
	case <-l.done:
		return errors.New("dnsgate: the loop is closed")
	}
}

func (l *Loop) add(s *socket) (id int32, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id = l.last; id == stopID || l.sockets[id] != nil; {
		id = max(id+1, 1) // from the start again after the last
	}
	if err := l.watch(s.fd, id); err != nil {
		return 0, err
	}
	l.sockets[id], l.last = s, id
	return id, nil
}

// remove closes the socket when no batch of it is under way.
func (l *Loop) remove(id int32, s *socket) {
	l.mu.Lock()
	delete(l.sockets, id)
	l.mu.Unlock()
	s.close(l.epoll)
}
