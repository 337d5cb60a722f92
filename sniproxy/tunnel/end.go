package tunnel

import (
	"golang.org/x/sys/unix"

	"sallyport/sniproxy/socket"
)

// What a loop waits for on a socket, at its edges: the end of room to write is
// only of interest once a write found none, and without it most events are
// about bytes.
const (
	eventsIn    = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLET
	eventsInOut = eventsIn | unix.EPOLLOUT
)

// An end is one end of a tunnel, and the direction that comes from it.
type end struct {
	tunnel *tunnel
	fd     int  // -1 if there is none, or no longer
	out    bool // the loop waits for room to write as well

	readable   bool // there may be bytes to read
	shortReads bool // a short read does not mean that they were all
	broken     bool // the kernel has found a fault
	full       bool // it takes no more bytes now
	bulk       bool // so much came at once that splicing pays
	eof        bool // its end was read
	vanished   bool // it broke after its end had come: see passRemainder
	passed     bool // ... and passed on

	// What was read from it and not passed on yet is in the pipe or in rest.
	pipe    pipe
	piped   int
	held    bool // it has the pipe
	rest    []byte
	counted int64 // bytes that were read from it, and let pass
}

// Ready is called by the loop. Where there was an event there is soon another one, of this
// tunnel or of the next: to look once more costs less than to sleep and be woken.
func (s *end) Ready(events uint32) (again bool) {
	s.note(events)
	s.tunnel.event()
	return true
}

// note remembers what events say.
func (s *end) note(events uint32) {
	if events&^unix.EPOLLOUT != 0 {
		s.readable = true
	}
	// The end may follow, or a fault; and a read stops before an urgent byte.
	if events&(unix.EPOLLPRI|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.shortReads = true
	}
	if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		s.full = false
	}
	s.broken = s.broken || events&unix.EPOLLERR != 0
}

func (s *end) Panicked(err error) { s.tunnel.Panicked(err) }

// waiting is how many bytes were read and not passed on.
func (s *end) waiting() int { return s.piped + len(s.rest) }

// awaitRoom has the loop say when the socket takes bytes again.
func (s *end) awaitRoom() error {
	s.full = true
	if s.out {
		return nil
	}
	s.out = true
	return s.tunnel.loop.Change(s.fd, eventsInOut)
}

// close ends the socket, with reset as a cut.
func (s *end) close(reset bool) {
	if s.fd < 0 {
		return
	}
	fd := s.fd
	s.fd = -1
	s.tunnel.loop.Forget(fd)
	if reset {
		socket.Reset(fd)
	} else {
		socket.Close(fd)
	}
	s.drop()
}

// drop gives up what was read and not passed on.
func (s *end) drop() {
	if s.held {
		s.held = false
		s.tunnel.v.pipes--
		if s.piped > 0 {
			s.pipe.close()
		} else {
			pipes.give(s.pipe)
		}
	}
	s.piped, s.rest = 0, nil
}
