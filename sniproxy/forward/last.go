package forward

import (
	"net"

	"sallyport/internal/contain"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/socket"
)

// cut breaks a connection of h. v.mu is held.
func (h *conn) cut(c *net.TCPConn) {
	socket.ResetConn(c)
	if h.last != nil {
		h.last.cut()
	}
}

// A lastWords waits until a connection has lingered.
type lastWords struct {
	h      *conn
	linger admission.Linger
	done   chan struct{}
}

// sayLast sends msg and ends the connection.
func (h *conn) sayLast(msg []byte) {
	fd, err := socket.Dup(h.client)
	if err != nil {
		return // it is closed
	}
	l := &lastWords{h: h, done: make(chan struct{})}
	l.linger.Words = append([]byte{}, msg...)
	h.v.mu.Lock()
	h.last = l
	h.v.Worker.Post(func() {
		defer contain.To(l)
		l.linger.Start(h.v.Worker, fd, l)
	})
	if h.v.ended || h.over.Load() != nil {
		h.cut(h.client)
	}
	h.v.mu.Unlock()
	<-l.done
}

// cut ends it early, by the reset of which its connection is to have.
func (l *lastWords) cut() {
	l.h.v.Worker.Post(l.linger.HangUp)
}

// Lingered is called by the linger.
func (l *lastWords) Lingered() { close(l.done) }

// Panicked is called by the loop.
func (l *lastWords) Panicked(err error) {
	l.h.Panicked(err)
	l.linger.HangUp()
}
