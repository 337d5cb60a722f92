package sniproxy

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/contain"
)

const (
	// maxEvents is how many events a loop takes from the kernel at a time.
	maxEvents = 128
	// shortBytes is the room of the buffer through which short pieces go.
	shortBytes = 16 << 10
)

// A loop serves the tunnels of some cells on one goroutine, with an epoll of its
// own. A goroutine for each direction of each tunnel costs a stack for as long
// as the tunnel is open and a switch for each piece that it moves; here a silent
// tunnel is a few hundred bytes, and what the kernel has ready is done in one
// go. Everything that belongs to a tunnel is the loop's: others post to it.
//
// The loop waits in Go's own poller, which knows its epoll as one descriptor, so
// that no thread is blocked and other goroutines get their turns.
type loop struct {
	epoll *os.File
	raw   syscall.RawConn
	fd    int

	entries []entry // by descriptor
	stamp   int32   // of the last one that was registered
	events  [maxEvents]unix.EpollEvent
	n       int // of them, from the last wait
	pollFor func(fd uintptr) bool
	now     time.Time // when it last woke
	timers  timers
	armed   time.Time // when it will wake by itself; zero if never
	due     turns
	moved   int // bytes, ever
	spare   spares
	buf     [shortBytes]byte
	clerk   *clerk
	records timer // set while some wait for the clerk
	stopped bool

	asleep atomic.Bool
	mu     sync.Mutex // guards posted
	posted []func()

	ended chan struct{}

	services int // that it serves; guarded by loops.mu
}

// An entry is who gets the events of a descriptor. The stamp tells its events
// from those of one that had the same number before.
type entry struct {
	handler handler
	stamp   int32
}

// A handler is told what the kernel says about a descriptor. If that panics it
// is told so, and must let go of all that it has.
type handler interface {
	ready(events uint32)
	Panicked(err error)
}

// loops are those that run, at most one for each processor. There are none while
// nobody serves.
var loops loopSet

type loopSet struct {
	mu      sync.Mutex // guards running, and the services of each
	running []*loop
}

// join returns the loop with the fewest services, for one more. The caller calls
// leave when that has ended.
func (ls *loopSet) join() (*loop, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	var least *loop
	for _, l := range ls.running {
		if least == nil || l.services < least.services {
			least = l
		}
	}
	if least == nil || least.services > 0 && len(ls.running) < runtime.GOMAXPROCS(0) {
		l, err := newLoop()
		if err != nil {
			return nil, err
		}
		ls.running, least = append(ls.running, l), l
	}
	least.services++
	return least, nil
}

// leave ends a loop with its last service, and waits for it.
func (ls *loopSet) leave(l *loop) {
	ls.mu.Lock()
	if l.services--; l.services > 0 {
		ls.mu.Unlock()
		return
	}
	for i := range ls.running {
		if ls.running[i] == l {
			ls.running = append(ls.running[:i], ls.running[i+1:]...)
			break
		}
	}
	ls.mu.Unlock()
	l.post(func() { l.stopped = true })
	<-l.ended
}

func newLoop() (*loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making an epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else Go would not poll it
		unix.Close(fd)
		return nil, fmt.Errorf("making an epoll: %w", err)
	}
	l := &loop{fd: fd, epoll: os.NewFile(uintptr(fd), "epoll"), clerk: newClerk(), ended: make(chan struct{})}
	l.pollFor, l.records.owner = l.poll, l
	if l.raw, err = l.epoll.SyscallConn(); err == nil {
		err = l.epoll.SetReadDeadline(time.Time{}) // fails if it cannot be waited for
	}
	if err != nil {
		l.epoll.Close()
		return nil, fmt.Errorf("waiting for an epoll: %w", err)
	}
	go l.run()
	return l, nil
}

// run is the loop, until its last service is gone.
func (l *loop) run() {
	defer close(l.ended)
	defer l.epoll.Close()
	defer l.clerk.end()
	for !l.stopped {
		if l.due.waiting == 0 {
			l.wait()
		} else {
			l.n = epollNow(l.fd, l.events[:])
		}
		l.now = time.Now()
		for i := range l.n {
			l.dispatch(&l.events[i])
		}
		l.runPosted()
		l.goOn()
		l.expire()
		l.handOver()
		if l.n > 0 || l.due.waiting > 0 {
			runtime.Gosched() // a busy loop leaves turns for others
		}
	}
}

// handOver gives the clerk what is to be recorded, now or soon.
func (l *loop) handOver() {
	switch n := len(l.clerk.fresh); {
	case n == 0:
	case l.clerk.urgent || n >= maxTogether:
		l.expired()
	case l.records.index == 0:
		l.set(&l.records, l.now.Add(recordDelay))
	}
}

// expired is called when records have waited long enough.
func (l *loop) expired() {
	l.unset(&l.records)
	l.clerk.deliver()
}

// wait waits for events, for what is posted and for the next deadline.
func (l *loop) wait() {
	l.n = 0
	next := l.timers.next()
	if !next.IsZero() && (l.armed.IsZero() || next.Before(l.armed)) {
		l.arm(next)
	}
	l.asleep.Store(true)
	err := l.raw.Read(l.pollFor)
	l.asleep.Store(false)
	if errors.Is(err, os.ErrDeadlineExceeded) { // also when somebody has posted
		l.arm(next)
	}
}

func (l *loop) arm(t time.Time) {
	_ = l.epoll.SetReadDeadline(t) // newLoop has found that it can be set
	l.armed = t
}

// poll takes what events there are; true means that the loop need not wait.
func (l *loop) poll(uintptr) bool {
	l.n = epollNow(l.fd, l.events[:])
	return l.n > 0 || l.hasPosted()
}

// post has the loop call f soon. Posts to a loop that has ended are lost.
func (l *loop) post(f func()) {
	l.mu.Lock()
	l.posted = append(l.posted, f)
	l.mu.Unlock()
	if l.asleep.Swap(false) {
		_ = l.epoll.SetReadDeadline(past) // wakes it; fails only where it has ended
	}
}

func (l *loop) hasPosted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.posted) > 0
}

func (l *loop) runPosted() {
	l.mu.Lock()
	posted := l.posted
	l.posted = nil
	l.mu.Unlock()
	for _, f := range posted {
		f()
	}
}

// register has h told of events of a descriptor, at its edges if events say so.
func (l *loop) register(fd int, events uint32, h handler) error {
	for fd >= len(l.entries) {
		l.entries = append(l.entries, entry{})
	}
	l.stamp++
	l.entries[fd] = entry{h, l.stamp}
	err := epollSet(l.fd, unix.EPOLL_CTL_ADD, fd, unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.stamp})
	if err != nil {
		l.entries[fd] = entry{}
	}
	return err
}

// change changes the events that the handler of a descriptor is told of.
func (l *loop) change(fd int, events uint32) error {
	return epollSet(l.fd, unix.EPOLL_CTL_MOD, fd, unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.entries[fd].stamp})
}

// forget ends the events of a descriptor, which is then closed.
func (l *loop) forget(fd int) {
	if fd < len(l.entries) {
		l.entries[fd] = entry{}
	}
}

// dispatch tells a handler of an event. What one cell sends must not end the
// gate of all the others.
func (l *loop) dispatch(e *unix.EpollEvent) {
	at := l.entries[e.Fd]
	if at.handler == nil || at.stamp != e.Pad {
		return // closed since
	}
	defer contain.To(at.handler)
	at.handler.ready(e.Events)
}
