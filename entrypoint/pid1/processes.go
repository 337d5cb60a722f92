package pid1

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killTime is how long every process gets to be gone after KILL.
const killTime = 5 * time.Second

// processes are all the processes that this one starts or inherits. It is the
// only place that waits for children; os/exec must not be used beside it.
type processes struct {
	init bool // this is PID 1 of its namespace

	// mu is held while a process is started and while children are reaped, so that
	// none is reaped before it is known, and none is signalled after.
	mu      sync.Mutex
	oom     int // descriptor of this process's oom_score_adj, or -1
	waiting map[int]chan unix.WaitStatus
	closed  bool // nothing may be started any more
}

// newProcesses starts the goroutine that reaps children; it lives as long as the
// process, as PID 1's duty does.
func newProcesses(oom int) *processes {
	ps := &processes{init: os.Getpid() == 1, oom: oom, waiting: make(map[int]chan unix.WaitStatus)}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			ps.reap()
		}
	}()
	return ps
}

// start starts a process as the leader of a session of its own. The channel gets
// its status once.
func (ps *processes) start(program string, argv, env []string, dir string, fds [3]int) (int, <-chan unix.WaitStatus, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return 0, nil, errors.New("the sandbox is ending")
	}
	// Of all processes of the sandbox the kernel shall end this one last. Without
	// privileges the value can be taken back to where it was, not below.
	old := ps.oomScore("1000")
	defer ps.oomScore(old)
	pid, err := syscall.ForkExec(program, argv, &syscall.ProcAttr{
		Dir:   dir,
		Env:   env,
		Files: []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, nil, err
	}
	ended := make(chan unix.WaitStatus, 1)
	ps.waiting[pid] = ended
	return pid, ended, nil
}

// findProgram resolves argv[0] as execvp(3) does, by the PATH of the job's own
// environment.
func findProgram(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var dirs string
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			dirs = v
		}
	}
	if dirs == "" {
		return "", fmt.Errorf("find the program %q: the job's environment has no PATH", name)
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		if !path.IsAbs(dir) {
			continue // a directory that the agent may choose is no place for programs
		}
		candidate := path.Join(dir, name)
		info, err := os.Stat(candidate)
		if err == nil && info.Mode().IsRegular() && unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
	}
	return "", fmt.Errorf("find the program %q: it is not in PATH %q", name, dirs)
}

// oomScore sets this process's oom_score_adj, which children inherit, and returns
// the value before. Failure is not an error: it only leaves the choice to the
// kernel.
func (ps *processes) oomScore(v string) (old string) {
	if ps.oom < 0 || v == "" {
		return ""
	}
	buf := make([]byte, 16)
	n, err := unix.Pread(ps.oom, buf, 0)
	if err != nil {
		return ""
	}
	unix.Pwrite(ps.oom, []byte(v), 0)
	return string(buf[:n])
}

// reap takes the status of every child that has ended and says whether any child
// is left.
func (ps *processes) reap() (left bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false // ECHILD
		case pid == 0:
			return true
		}
		if ended, ok := ps.waiting[pid]; ok {
			ended <- status
			delete(ps.waiting, pid)
		}
	}
}

// signalGroup signals the process group of a process that start returned.
func (ps *processes) signalGroup(pid int, sig unix.Signal) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if _, ok := ps.waiting[pid]; ok { // else the number may be someone else's by now
		unix.Kill(-pid, sig) // fails only where nobody is left
	}
}

// signalAll signals every process but this one: of the namespace where this is
// PID 1, else of its descendants.
func (ps *processes) signalAll(sig unix.Signal) {
	if ps.init {
		unix.Kill(-1, sig) // fails only where nobody is left
		return
	}
	ps.mu.Lock() // no descendant's number is freed meanwhile
	defer ps.mu.Unlock()
	for _, pid := range descendants(os.Getpid()) {
		unix.Kill(pid, sig)
	}
}

// close ends it all: nothing is started any more, and every process is killed.
func (ps *processes) close() error {
	ps.mu.Lock()
	ps.closed = true
	ps.mu.Unlock()
	return ps.killRest()
}

// killRest kills every process but this one and reaps it. An error says that one
// is left.
func (ps *processes) killRest() error {
	deadline := time.Now().Add(killTime)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		ps.signalAll(unix.SIGKILL)
		if !ps.reap() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a process is left %v after it was killed", killTime)
		}
		time.Sleep(pause)
	}
}

// descendants lists the processes below pid by /proc, children before theirs.
func descendants(pid int) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]int)
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(id); ok {
			children[parent] = append(children[parent], id)
		}
	}
	var found []int
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		found = append(found, children[next[0]]...)
		next = append(next, children[next[0]]...)
	}
	return found
}

// parentOf reads the fourth field of /proc/PID/stat (proc(5)); the second, the
// command in parentheses, may hold anything.
func parentOf(pid int) (int, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	for i := len(stat) - 1; i > 0; i-- {
		if stat[i] == ')' {
			var state byte
			var parent int
			_, err := fmt.Sscanf(string(stat[i+1:]), " %c %d", &state, &parent)
			return parent, err == nil
		}
	}
	return 0, false
}
