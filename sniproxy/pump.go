package sniproxy

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// errNoSplice says that there was no pipe to be had, or that the source does not
// splice. Nothing has moved.
var errNoSplice = errors.New("cannot splice")

// A pump passes on the bytes of one direction of a tunnel by splice(2). It holds
// a pipe only while there are bytes to move: io.Copy would keep one, with its
// two descriptors, for as long as the tunnel lives, and most of the time most
// tunnels are silent.
type pump struct {
	in, out     syscall.RawConn
	fill, drain func(fd uintptr) (done bool) // of this pump, made once

	pipe    pipe
	held    bool
	waiting int // bytes in the pipe
	err     error
}

func newPump(dst, src *net.TCPConn) (*pump, error) {
	in, err := src.SyscallConn()
	if err != nil {
		return nil, err
	}
	out, err := dst.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &pump{in: in, out: out}
	p.fill, p.drain = p.fillFrom, p.drainTo
	return p, nil
}

// next waits for bytes and passes on one piece. It returns how many bytes the
// destination has taken, also with an error. The end of the stream is io.EOF;
// after any error but errNoSplice the pump must not be used again.
func (p *pump) next() (n int, err error) {
	if err := p.in.Read(p.fill); err != nil {
		p.drop()
		return 0, err
	}
	if p.err != nil || p.waiting == 0 {
		p.release()
		if p.err == nil {
			p.err = io.EOF
		}
		return 0, p.err
	}
	n = p.waiting
	err = p.out.Write(p.drain)
	if err == nil {
		err = p.err
	}
	n -= p.waiting
	if err != nil {
		p.drop()
	}
	return n, err
}

// fillFrom splices from a socket into the pipe, and returns false, without a
// pipe, if there is nothing to read yet.
func (p *pump) fillFrom(fd uintptr) bool {
	if !p.held {
		pipe, err := pipes.take()
		if err != nil {
			p.err = errNoSplice
			return true
		}
		p.pipe, p.held = pipe, true
	}
	p.waiting, p.err = splice(int(fd), p.pipe.w)
	switch p.err {
	case syscall.EAGAIN:
		p.release()
		return false
	case syscall.EINVAL, syscall.ENOSYS:
		p.err = errNoSplice
	}
	return true
}

// drainTo splices from the pipe to a socket, and returns false if that takes no
// more now.
func (p *pump) drainTo(fd uintptr) bool {
	for p.waiting > 0 {
		n, err := splice(p.pipe.r, int(fd))
		p.waiting -= n
		switch {
		case err == syscall.EAGAIN:
			return false
		case err == nil && n == 0:
			err = io.ErrUnexpectedEOF
			fallthrough
		case err != nil:
			p.err = err
			return true
		}
	}
	return true
}

// release gives back a pipe that is empty.
func (p *pump) release() {
	if p.held {
		p.held = false
		pipes.give(p.pipe)
	}
}

// drop ends the use of the pipe, whatever is in it.
func (p *pump) drop() {
	switch {
	case p.held && p.waiting > 0:
		p.held = false
		p.pipe.close()
	default:
		p.release()
	}
}

// nextBuffered is next through a buffer of ours.
func (p *pump) nextBuffered(dst, src *net.TCPConn) (int, error) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	n, err := src.Read(*buf)
	if n == 0 {
		return 0, err
	}
	return dst.Write((*buf)[:n]) // an error of the read comes again
}
