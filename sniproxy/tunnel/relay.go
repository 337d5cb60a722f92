package tunnel

import (
	"cmp"
	"errors"
	"io"
	"syscall"

	"sallyport/sniproxy/socket"

	"golang.org/x/sys/unix"
)

// turnBytes is about how many bytes of one direction are moved, in one piece, before
// other tunnels have their turn: as many as a pipe holds. A new connection waits for a
// few turns; less at a time costs more processor.
const turnBytes = pipeBytes

// errCut ends a tunnel that is over budget.
var errCut = errors.New("cut")

// relay passes on what has come, in both directions, until both have ended. The
// end of one is passed on as a half-close while the other goes on; a connection
// that breaks breaks the other one too, also when it has no more to say: else a
// client that closed both ways would keep a tunnel to a silent upstream. What one
// has said that had ended before it broke is passed on first.
func (t *tunnel) relay() {
	if t.doomed.Load() {
		t.cut()
		return
	}
	t.v.sweepSoon()
	t.client.noteVanished()
	t.up.noteVanished()
	more, err := t.pass(&t.client, &t.up)
	if err == nil {
		var moreDown bool
		moreDown, err = t.pass(&t.up, &t.client)
		more = more || moreDown
	}
	if err == nil && t.client.broken && t.client.waiting() > 0 {
		err = t.client.fault()
	}
	switch {
	case err != nil:
		t.overdrawn = err == errCut
		t.cut()
	case t.client.passed && t.up.passed:
		t.client.close(false)
		t.up.close(false)
		t.end()
	case t.client.vanished || t.up.vanished:
		t.passRemainder(more)
	case more:
		t.mover.schedule.add(t)
	}
}

// pass moves bytes from src to dst until there are no more, dst takes no more or
// it was a turn's worth, and then more is true.
func (t *tunnel) pass(src, dst *end) (more bool, err error) {
	for begin := src.counted; ; {
		if dst.vanished {
			return false, t.discard(src)
		}
		if src.waiting() > 0 {
			if dst.full {
				return false, nil
			}
			if err := dst.refuses(src.drainTo(dst)); err != nil || src.waiting() > 0 && !dst.vanished {
				return false, err
			}
			continue
		}
		switch {
		case src.passed:
			return false, nil
		case src.eof:
			src.passed = true
			if src.drop(); dst.passed {
				return false, nil // both will be closed
			}
			if err := socket.Shutdown(dst.fd); err != nil {
				return false, dst.refuses(cmp.Or(socket.Fault(dst.fd), err))
			}
			return false, nil
		case !src.readable:
			src.drop() // an empty pipe
			return false, nil
		case src.counted-begin >= turnBytes:
			return true, nil
		}
		if err := t.fill(src, dst); err != nil {
			return false, err
		}
	}
}

// fill reads one piece from src. Short ones are passed on from the loop's buffer
// at once; where they come in bulk, they stay in the kernel.
func (t *tunnel) fill(src, dst *end) error {
	if src.bulk {
		if err := t.splice(src); err != errNoSplice {
			return err
		}
	}
	n, err := socket.Read(src.fd, t.loop.Buffer[:])
	if err != nil {
		return src.stopped(err)
	}
	// Fewer bytes than there is room for are all that there were.
	switch {
	case n == len(t.loop.Buffer):
		src.bulk = true
	case !src.shortReads:
		src.readable = false
	}
	if !t.count(src, n) {
		return errCut
	}
	m := 0
	if !dst.full {
		if m, err = socket.Write(dst.fd, t.loop.Buffer[:n]); err != nil && err != unix.EAGAIN {
			src.counted -= int64(n)
			return dst.refuses(err)
		}
	}
	if m < n {
		src.rest = append([]byte(nil), t.loop.Buffer[m:n]...)
		return dst.awaitRoom()
	}
	return nil
}

// errNoSplice says that there was no pipe to be had, or that the source does not
// splice. Nothing has moved.
var errNoSplice = errors.New("cannot splice")

// splice is fill by way of a pipe, which is held only while there are bytes to
// move: most of the time most tunnels are silent.
func (t *tunnel) splice(src *end) error {
	if !src.held {
		if t.v.pipes >= maxCellPipes {
			return errNoSplice
		}
		p, err := pipes.take()
		if err != nil {
			return errNoSplice
		}
		src.pipe, src.held = p, true
		t.v.pipes++
	}
	n, err := socket.Splice(src.fd, src.pipe.w, turnBytes)
	switch {
	case err == syscall.EINVAL || err == syscall.ENOSYS:
		return errNoSplice
	case err != nil:
		return src.stopped(err)
	case n == 0:
		return src.stopped(io.EOF)
	}
	src.piped = n
	src.bulk = n >= len(t.loop.Buffer)
	if !t.count(src, n) {
		return errCut
	}
	return nil
}

// stopped says what a read without bytes means.
func (s *end) stopped(err error) error {
	switch err {
	case unix.EAGAIN:
		s.readable = false
	case io.EOF:
		s.eof, s.readable = true, false
		s.noteVanished()
	default:
		return err
	}
	return nil
}

// count counts n bytes that were read from src, unless they are over budget: then
// they are counted all the same and must not be passed on.
func (t *tunnel) count(src *end, n int) (ok bool) {
	src.counted += int64(n)
	t.mover.moved += n
	return t.Meter.Count(src == &t.client, n)
}

// drainTo passes on what waits, as far as dst takes it.
func (s *end) drainTo(dst *end) error {
	for s.waiting() > 0 {
		n, err := 0, error(nil)
		if s.piped > 0 {
			n, err = socket.Splice(s.pipe.r, dst.fd, turnBytes)
			s.piped -= n
		} else {
			n, err = socket.Write(dst.fd, s.rest)
			s.rest = s.rest[n:]
		}
		switch {
		case err == unix.EAGAIN:
			return dst.awaitRoom()
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
	}
	s.rest = nil
	return nil
}
