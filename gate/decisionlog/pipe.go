package decisionlog

import (
	"io"
	"os"
	"strconv"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// OnPipe returns what writes to out at the least cost where out is a pipe, as
// under an engine, and else out itself. Each Write is in one piece, also where out's
// reader is slow, among those of the writer that it returns. Only what was written
// is counted, and the errors are those of out.
func OnPipe(out io.Writer) io.Writer {
	file, ok := out.(*os.File)
	if !ok {
		return out
	}
	if info, err := file.Stat(); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		return out // a call on anything else may wait in the kernel, whatever its flags say
	}
	p := &pipe{File: file, quick: -1}
	raw, err := file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			// Opened anew: the flags of the descriptor are shared with whoever made it.
			p.quick, err = unix.Open("/proc/self/fd/"+strconv.Itoa(int(fd)), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		})
	}
	if err != nil || p.quick < 0 {
		return out
	}
	return p
}

// A pipe writes what fits without telling the Go runtime. A call of which it knows
// wakes its monitor thread, where the program was idle, and for one line that costs
// more than to write it.
type pipe struct {
	*os.File // waits for what does not fit
	quick    int

	mu sync.Mutex // held while a Write is under way
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(p.quick), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		n = 0
	}
	if int(n) == len(b) {
		return len(b), nil
	}
	more, err := p.File.Write(b[n:])
	return int(n) + more, err
}
