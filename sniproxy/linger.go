package sniproxy

import (
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/contain"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/socket"
)

// lingerTime bounds how long a connection is kept so that its last words are not lost to
// a reset.
const lingerTime = 500 * time.Millisecond

// maxDrain bounds what is read and dropped of what a client still sends, in bytes.
const maxDrain = 256 << 10

// A linger ends a connection so that the client can read the last words: closing at
// once, with bytes of the client unread, would make the kernel send a reset that
// overtakes them. What the client still sends is read and dropped, within bounds. It
// belongs to its loop.
type linger struct {
	worker  *worker
	owner   lingerer // nil before the start and after the end
	fd      int
	words   []byte // what is left of them
	said    bool   // all of them
	drained int
	timer   evloop.Timer
}

// A lingerer is told when a connection is closed.
type lingerer interface {
	lingered()
	contain.Holder
}

// start takes over the descriptor, which may be registered, or -1 where there is
// nothing to say any more.
func (l *linger) start(w *worker, fd int, owner lingerer) {
	l.worker, l.fd, l.owner = w, fd, owner
	l.timer.Owner = l
	if fd < 0 || l.words == nil {
		l.hangUp()
		return
	}
	if w.Handler(fd) != nil {
		w.HandOver(fd, l)
	} else if err := w.Register(fd, eventsInOut, l); err != nil {
		l.hangUp()
		return
	}
	w.Set(&l.timer, w.Now.Add(lingerTime))
	l.goOn()
}

// goOn says what is left to say, and then drops what comes.
func (l *linger) goOn() {
	for !l.said {
		if len(l.words) > 0 {
			n, err := socket.Write(l.fd, l.words)
			if l.words = l.words[n:]; err == unix.EAGAIN && l.worker.Change(l.fd, eventsInOut) == nil {
				return
			} else if err != nil {
				l.hangUp()
				return
			}
			continue
		}
		if l.said = true; socket.Shutdown(l.fd) != nil {
			l.hangUp()
			return
		}
	}
	for {
		n, err := socket.Read(l.fd, l.worker.buf[:])
		switch l.drained += n; {
		case err == unix.EAGAIN:
			return
		case err != nil || l.drained >= maxDrain:
			l.hangUp()
			return
		}
	}
}

// Ready is called by the loop.
func (l *linger) Ready(uint32) (again bool) {
	l.goOn()
	return false
}

// Expired is called when the client had its time.
func (l *linger) Expired() {
	defer contain.To(l)
	l.hangUp()
}

// Panicked is called by the loop.
func (l *linger) Panicked(err error) {
	if l.owner != nil {
		l.owner.Panicked(err)
	}
}

// held is the descriptor, or -1.
func (l *linger) held() int {
	if l.owner == nil {
		return -1
	}
	return l.fd
}

// hangUp ends the connection. A second call does nothing.
func (l *linger) hangUp() {
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
	owner.lingered()
}
