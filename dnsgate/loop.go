package dnsgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Loop answers the UDP queries of any number of cells, one batch of one cell
// after another, so that no cell waits for more than a batch of each other one.
// An answer is made from memory in microseconds: one goroutine does for all.
//
// It has an epoll of its own, which the runtime's poller knows as one descriptor
// and waits for. Sockets that the poller knew would cost each query a failed read
// and a change of goroutine. A wait of its own would be a call of the kernel that
// the runtime is told of: where the program was idle, that wakes its monitor thread,
// for each query.
type Loop struct {
	epoll int // descriptor
	file  *os.File
	ready syscall.RawConn // of file
	stop  int             // descriptor: an eventfd that ends the loop
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
	if l.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("dnsgate: eventfd: %w", err)
	}
	if err = l.open(); err == nil {
		err = l.watch(l.stop, stopID)
	}
	if err != nil {
		l.release()
		return nil, err
	}
	go l.run()
	return l, nil
}

// open makes the epoll, for the runtime's poller to wait for.
func (l *Loop) open() (err error) {
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("dnsgate: epoll: %w", err)
	}
	err = unix.SetNonblock(l.epoll, true) // else the poller would not take it
	l.file = os.NewFile(uintptr(l.epoll), "epoll")
	if err == nil {
		err = l.file.SetReadDeadline(time.Time{}) // fails if it cannot be waited for
	}
	if err == nil {
		l.ready, err = l.file.SyscallConn()
	}
	if err != nil {
		return fmt.Errorf("dnsgate: wait for an epoll: %w", err)
	}
	return nil
}

// release closes the descriptors.
func (l *Loop) release() {
	unix.Close(l.stop)
	if l.file != nil {
		l.file.Close()
	}
}

// Close ends the loop and returns when it has ended. The cells that it still has
// are not served any more, and their Serve fails.
func (l *Loop) Close() error {
	_, err := unix.Write(l.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	if err != nil {
		return fmt.Errorf("dnsgate: end the loop: %w", err)
	}
	<-l.done
	l.release()
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
	var fault error
	// All is done while Read asks whether it has to wait: an arrival meanwhile makes
	// that wait a short one.
	err := l.ready.Read(func(uintptr) (ended bool) {
		for more := true; more && fault == nil && !ended; {
			more, ended, fault = l.serveReady(b, events)
		}
		return ended || fault != nil
	})
	if err = cmp.Or(fault, err); err != nil {
		l.fail(fmt.Errorf("dnsgate: wait for queries: %w", err))
	}
}

// serveReady serves a batch of each socket that is ready. More says that it may not
// have been all: the poller tells only of what arrives.
func (l *Loop) serveReady(b *batch, events []unix.EpollEvent) (more, ended bool, err error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll),
		uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0) // without waiting
	if errno != 0 {
		if errno == unix.EINTR {
			return true, false, nil
		}
		return false, false, errno
	}
	n := int(r)
	more = n == len(events)
	for _, e := range events[:n] {
		if e.Fd == stopID {
			return false, true, nil
		}
		if s := l.socket(e.Fd); s != nil && s.serve(b) {
			more = true
		}
	}
	return more, false, nil
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
