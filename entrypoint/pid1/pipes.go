package pid1

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipes are a process's three streams.
type pipes struct {
	child                 [3]int   // the process's ends, in blocking mode as a process expects
	stdin, stdout, stderr *os.File // PID 1's ends, which can be given deadlines
}

func openPipes() (*pipes, error) {
	p := &pipes{child: [3]int{-1, -1, -1}}
	own := []**os.File{&p.stdin, &p.stdout, &p.stderr}
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			p.closeChildEnds()
			p.closeOwnEnds()
			return nil, fmt.Errorf("make the pipe for %s: %w", name, err)
		}
		mine, childs := ends[0], ends[1]
		if i == 0 {
			mine, childs = ends[1], ends[0]
		}
		p.child[i] = childs
		unix.SetNonblock(mine, true) // cannot fail on a fresh pipe
		*own[i] = os.NewFile(uintptr(mine), name)
	}
	return p, nil
}

func (p *pipes) closeChildEnds() {
	for i, fd := range p.child {
		if fd >= 0 {
			unix.Close(fd)
			p.child[i] = -1
		}
	}
}

// abandon ends the copying although a process may still hold the other ends.
func (p *pipes) abandon() {
	p.stdin.Close()
	p.stdout.SetReadDeadline(time.Now())
	p.stderr.SetReadDeadline(time.Now())
}

func (p *pipes) closeOwnEnds() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}
