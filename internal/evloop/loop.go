// Package evloop waits for many sockets on one goroutine. A goroutine for each of them
// would cost a stack for as long as it is open, and a switch for each piece that it
// moves; here a silent socket is an entry in a table, and what the kernel has ready is
// done in one go.
//
// A Loop has an epoll of its own, which Go's poller knows as one descriptor and waits
// for. Sockets that the poller knew would cost each event a failed read and a change of
// goroutine. A wait of its own would block a thread, and be a call of the kernel that
// the runtime is told of: where the program was idle, that wakes its monitor thread,
// for each event.
//
// What a handler has belongs to its loop. Others call Post alone.
package evloop

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

// MaxEvents is how many events a loop takes from the kernel at a time.
const MaxEvents = 128

// past is a deadline that ends a wait at once.
var past = time.Unix(1, 0)

// A Loop tells handlers of the events of their descriptors, runs what is posted to it,
// and tells timers of their time, one after another.
type Loop struct {
	// Now is when the loop last looked for events.
	Now time.Time

	work    func() (more bool)
	epoll   *os.File
	raw     syscall.RawConn
	fd      int
	entries []entry // by descriptor
	stamp   int32   // of the last one that was registered
	events  [MaxEvents]unix.EpollEvent
	timers  timers
	armed   time.Time // when it will wake by itself; zero if never
	stopped bool

	asleep  atomic.Bool
	pending atomic.Bool // something is posted
	mu      sync.Mutex  // guards posted
	posted  []func()

	ended chan struct{}
}

// An entry is who gets the events of a descriptor. The stamp tells its events
// from those of one that had the same number before.
type entry struct {
	handler Handler
	stamp   int32
}

// A Handler is told what the kernel says about a descriptor. Again says that there may be
// more of it, also without a further event: the loop looks once more before it waits.
// If Ready panics, Panicked is called.
type Handler interface {
	Ready(events uint32) (again bool)
	contain.Holder
}

// New makes a loop. Unless work is nil, the loop calls it each time after it has looked
// for events, and does not wait while there is more of it to do. Run runs the loop.
func New(work func() (more bool)) (*Loop, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making an epoll: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // else Go would not poll it
		unix.Close(fd)
		return nil, fmt.Errorf("making an epoll: %w", err)
	}
	l := &Loop{work: work, fd: fd, epoll: os.NewFile(uintptr(fd), "epoll"), ended: make(chan struct{})}
	if l.raw, err = l.epoll.SyscallConn(); err == nil {
		err = l.epoll.SetReadDeadline(time.Time{}) // fails if it cannot be waited for
	}
	if err != nil {
		l.epoll.Close()
		return nil, fmt.Errorf("waiting for an epoll: %w", err)
	}
	return l, nil
}

// Run is the loop, until Stop is called. It is called once.
func (l *Loop) Run() {
	defer close(l.ended)
	defer l.epoll.Close()
	// All is done while Read asks whether it has to wait: an event meanwhile makes that
	// wait a short one, and nobody has to ask the kernel once more whether there are any.
	for !l.stopped {
		switch err := l.raw.Read(l.rounds); {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded): // of a timer, or somebody has posted
			l.arm(time.Time{}) // a Read whose deadline is over does not ask
		default:
			panic(err) // nobody but this function closes it
		}
	}
}

// Stop ends the loop and returns when it has ended. Posts to it are lost from then on.
func (l *Loop) Stop() {
	l.Post(func() { l.stopped = true })
	<-l.ended
}

// Ended is closed when the loop has ended.
func (l *Loop) Ended() <-chan struct{} { return l.ended }

// rounds goes on until there is nothing to do but wait; true means that the loop
// must not.
func (l *Loop) rounds(uintptr) (stopped bool) {
	l.asleep.Store(false)
	for {
		for l.Round() {
			runtime.Gosched() // a busy loop leaves turns for others
		}
		if l.stopped {
			return true
		}
		if next := l.timers.next(); !next.IsZero() && (l.armed.IsZero() || next.Before(l.armed)) {
			l.arm(next)
		}
		l.asleep.Store(true)
		if !l.pending.Load() {
			return false
		}
		l.asleep.Store(false)
	}
}

// Round does all that there is to do now, without waiting; again says that there may be
// more. Run calls it. A test of code that belongs to a loop can call it instead, and
// then has the clock in its hand.
func (l *Loop) Round() (again bool) {
	n := wait(l.fd, l.events[:])
	l.Now = time.Now()
	again = n == len(l.events)
	for i := range n {
		if l.dispatch(&l.events[i]) {
			again = true
		}
	}
	l.runPosted()
	l.expire()
	if l.work != nil && l.work() {
		again = true
	}
	return again && !l.stopped
}

func (l *Loop) arm(t time.Time) {
	_ = l.epoll.SetReadDeadline(t) // New has found that it can be set
	l.armed = t
}

// Post has the loop call f soon.
func (l *Loop) Post(f func()) {
	l.mu.Lock()
	l.posted = append(l.posted, f)
	l.mu.Unlock()
	l.pending.Store(true)
	if l.asleep.Swap(false) {
		_ = l.epoll.SetReadDeadline(past) // wakes it; fails only where it has ended
	}
}

func (l *Loop) runPosted() {
	if !l.pending.Swap(false) {
		return
	}
	l.mu.Lock()
	posted := l.posted
	l.posted = nil
	l.mu.Unlock()
	for _, f := range posted {
		f()
	}
}

// Register has h told of events of a descriptor, at its edges if events say so.
func (l *Loop) Register(fd int, events uint32, h Handler) error {
	for fd >= len(l.entries) {
		l.entries = append(l.entries, entry{})
	}
	l.stamp++
	l.entries[fd] = entry{h, l.stamp}
	err := control(l.fd, unix.EPOLL_CTL_ADD, fd, unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.stamp})
	if err != nil {
		l.entries[fd] = entry{}
	}
	return err
}

// Change changes the events that the handler of a descriptor is told of.
func (l *Loop) Change(fd int, events uint32) error {
	return control(l.fd, unix.EPOLL_CTL_MOD, fd, unix.EpollEvent{Events: events, Fd: int32(fd), Pad: l.entries[fd].stamp})
}

// HandOver has another handler told of the events of a descriptor.
func (l *Loop) HandOver(fd int, to Handler) { l.entries[fd].handler = to }

// Handler returns the handler of a descriptor, or nil.
func (l *Loop) Handler(fd int) Handler {
	if fd < 0 || fd >= len(l.entries) {
		return nil
	}
	return l.entries[fd].handler
}

// Release ends the events of a descriptor that is not closed then.
func (l *Loop) Release(fd int) {
	if l.Handler(fd) != nil {
		l.entries[fd] = entry{}
		_ = control(l.fd, unix.EPOLL_CTL_DEL, fd, unix.EpollEvent{}) // it is registered
	}
}

// Forget ends the events of a descriptor, which is then closed.
func (l *Loop) Forget(fd int) {
	if fd < len(l.entries) {
		l.entries[fd] = entry{}
	}
}

// dispatch tells a handler of an event.
func (l *Loop) dispatch(e *unix.EpollEvent) (again bool) {
	at := l.entries[e.Fd]
	if at.handler == nil || at.stamp != e.Pad {
		return false // closed since
	}
	again = true // if it panics
	defer contain.To(at.handler)
	return at.handler.Ready(e.Events)
}
