package admission

import (
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/contain"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/socket"
)

// lingerEvents are what it waits for, at the edges.
const lingerEvents = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLOUT | unix.EPOLLET

// lingerTime bounds how long a connection is kept so that its last words are not lost to
// a reset.
const lingerTime = 500 * time.Millisecond

// MaxDrain bounds what is read and dropped of what a client still sends, in bytes.
const MaxDrain = 256 << 10

// A Linger ends a connection so that the client can read the last words: closing at
// once, with bytes of the client unread, would make the kernel send a reset that
// overtakes them. What the client still sends is read and dropped, within bounds. It
// belongs to its loop.
type Linger struct {
	worker  *Worker
	owner   Lingerer // nil before the start and after the end
	fd      int
	Words   []byte // what is left to say; nil hangs up at once
	said    bool   // all of them
	drained int
	timer   evloop.Timer
}

// A Lingerer is told when a connection is closed.
type Lingerer interface {
	Lingered()
	contain.Holder
}

// Start takes over the descriptor, which may be registered, or -1 where there is
// nothing to say any more.
func (l *Linger) Start(w *Worker, fd int, owner Lingerer) {
	l.worker, l.fd, l.owner = w, fd, owner
	l.timer.Owner = l
	if fd < 0 || l.Words == nil {
		l.HangUp()
		return
	}
	if w.Handler(fd) != nil {
		w.HandOver(fd, l)
	} else if err := w.Register(fd, lingerEvents, l); err != nil {
		l.HangUp()
		return
	}
	w.Set(&l.timer, w.Now.Add(lingerTime))
	l.sayAndDrain()
}

// sayAndDrain says what is left to say, and then drops what comes.
func (l *Linger) sayAndDrain() {
	for !l.said {
		if len(l.Words) > 0 {
			n, err := socket.Write(l.fd, l.Words)
			if l.Words = l.Words[n:]; err == unix.EAGAIN && l.worker.Change(l.fd, lingerEvents) == nil {
				return
			} else if err != nil {
				l.HangUp()
				return
			}
			continue
		}
		if l.said = true; socket.Shutdown(l.fd) != nil {
			l.HangUp()
			return
		}
	}
	for {
		n, err := socket.Read(l.fd, l.worker.Buffer[:])
		switch l.drained += n; {
		case err == unix.EAGAIN:
			return
		case err != nil || l.drained >= MaxDrain:
			l.HangUp()
			return
		}
	}
}

// Ready is called by the loop.
func (l *Linger) Ready(uint32) (again bool) {
	l.sayAndDrain()
	return false
}

// Expired is called when the client had its time.
func (l *Linger) Expired() {
	defer contain.To(l)
	l.HangUp()
}

// Panicked is called by the loop.
func (l *Linger) Panicked(err error) {
	if l.owner != nil {
		l.owner.Panicked(err)
	}
}

// FD is the descriptor, or -1.
func (l *Linger) FD() int {
	if l.owner == nil {
		return -1
	}
	return l.fd
}

// HangUp ends the connection. A second call does nothing.
func (l *Linger) HangUp() {
	owner := l.owner
	if owner == nil {
		return
	}
	l.owner = nil
	l.worker.Unset(&l.timer)
	if l.fd >= 0 {
		l.worker.Forget(l.fd)
		socket.Close(l.fd)
	}
	owner.Lingered()
}
