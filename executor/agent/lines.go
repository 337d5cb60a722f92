package agent

import "bytes"

// maxLine is the longest line of an agent's output that is read, in bytes. The
// longest that pi has reason to print is an image that it read, about 6 MiB.
const maxLine = 8 << 20

// headLength is how much of a line is shown to the function that decides
// whether it is wanted, in bytes.
const headLength = 128

// lines cuts a stream into lines without ever keeping more than maxLine of one.
type lines struct {
	// wanted looks at the first headLength bytes of a line, or at all of a shorter
	// one. The rest of a line that is not wanted is not kept.
	wanted func(head []byte) bool
	// line gets each wanted line without its end; it must not keep it.
	line func(line []byte)
	// tooLong is told of each wanted line that was longer than maxLine and is lost.
	tooLong func()

	buf    []byte // the unfinished line so far
	judged bool   // wanted has said yes to it
	skip   bool   // the rest of it is dropped
}

func (l *lines) feed(p []byte) {
	for len(p) > 0 {
		part, rest, ended := bytes.Cut(p, []byte{'\n'})
		p = rest
		switch {
		case l.skip:
		case ended && len(l.buf) == 0:
			l.end(part) // the usual case: no copy
			continue
		default:
			l.keep(part)
		}
		if ended {
			l.flush()
		}
	}
}

// keep adds to the unfinished line.
func (l *lines) keep(part []byte) {
	if len(l.buf)+len(part) > maxLine {
		l.drop()
		l.tooLong()
		return
	}
	l.buf = append(l.buf, part...)
	if l.judged || len(l.buf) < headLength {
		return
	}
	if l.judged = l.wanted(l.buf[:headLength]); !l.judged {
		l.drop()
	}
}

func (l *lines) drop() { l.buf, l.skip = nil, true }

// flush ends the unfinished line, if there is one.
func (l *lines) flush() {
	if len(l.buf) > 0 {
		l.end(l.buf)
	}
	l.skip, l.judged = false, false
	if l.buf = l.buf[:0]; cap(l.buf) > 1<<20 {
		l.buf = nil // do not sit on the memory of one long line
	}
}

func (l *lines) end(line []byte) {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if len(line) == 0 || !l.judged && !l.wanted(line[:min(len(line), headLength)]) {
		return
	}
	if len(line) > maxLine {
		l.tooLong()
		return
	}
	l.line(line)
}
