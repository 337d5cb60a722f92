package compose_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// A secondEngine is an engine of the test's own in a network namespace of its own,
// so that it can be killed, and its packet filter flushed, without anybody else's
// containers losing anything.
type secondEngine struct {
	dir   string
	ns    netns.NsHandle
	ended chan error // gets what each dockerd ended with
	pid   int
}

// startSecondEngine starts one with the images of this repository on it. For the
// rest of the test docker(1), the scripts and the stack of the tests use it.
func startSecondEngine(t *testing.T) *secondEngine {
	t.Helper()
	images := []string{"sallyport/base:bookworm", "sallyport/agent-tools:dev", "sallyport/gate:dev", "sallyport/executor:dev", "sallyport/agent:dev", "sallyport/demo:dev"}
	archive := exec.Command("docker", append([]string{"save"}, images...)...)

	dir, err := os.MkdirTemp("/var/tmp", "sallyport-engine-")
	if err != nil {
		t.Fatal(err)
	}
	e := &secondEngine{dir: dir, ended: make(chan error, 1)}
	if e.ns, err = newNamespace(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.remove(t) })
	e.start(t)

	// From here on everybody asks this one, but for the command made above.
	archive.Env = os.Environ()
	t.Setenv("DOCKER_HOST", "unix://"+e.socket())
	t.Setenv("SALLYPORT_SOCKET", "")
	pipe, err := archive.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	load := exec.Command("docker", "load", "--quiet")
	load.Stdin = pipe
	if err := archive.Start(); err != nil {
		t.Fatal(err)
	}
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("load the images: %v\n%s", err, out)
	}
	if err := archive.Wait(); err != nil {
		t.Fatalf("save the images: %v", err)
	}
	e.bringUp(t)
	return e
}

// bringUp starts the stack on this engine and has the test use it.
func (e *secondEngine) bringUp(t *testing.T) {
	t.Helper()
	before := st
	t.Cleanup(func() { st = before })
	work := filepath.Join(e.dir, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	if st, err = newStack(work); err != nil {
		t.Fatal(err)
	}
	out, err := st.script("scripts/up")
	t.Cleanup(func() {
		if out, err := st.script("scripts/down", stackName); err != nil {
			t.Errorf("take the stack down: %v\n%s", err, out)
		}
	})
	if err != nil {
		t.Fatalf("start the stack: %v\n%s", err, out)
	}
	if err := st.connect(&http.Transport{DialContext: e.dial}); err != nil {
		t.Fatal(err)
	}
}

func (e *secondEngine) socket() string { return filepath.Join(e.dir, "docker.sock") }

// start starts dockerd and waits until it answers. It is told to end should this
// process die.
func (e *secondEngine) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(e.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("dockerd", "--data-root", filepath.Join(e.dir, "data"), "--exec-root", filepath.Join(e.dir, "run"),
		"--pidfile", filepath.Join(e.dir, "pid"), "--host", "unix://"+e.socket(),
		"--containerd-namespace", filepath.Base(e.dir), "--containerd-plugins-namespace", filepath.Base(e.dir)+"-plugins")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() { // owned by stop, which waits for its end
		defer log.Close()
		// The signal comes when the thread ends: it stays for as long as dockerd.
		runtime.LockOSThread()
		if err := netns.Set(e.ns); err != nil {
			started <- err
			return
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			e.ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start a second engine: %v", err)
	}
	e.pid = cmd.Process.Pid
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if exec.Command("docker", "-H", "unix://"+e.socket(), "version").Run() == nil {
			return
		}
		if time.Now().After(end) {
			said, _ := os.ReadFile(filepath.Join(e.dir, "log"))
			t.Fatalf("the second engine does not answer:\n%s", said[max(0, len(said)-2000):])
		}
	}
}

// stop ends dockerd by a signal and waits until it is gone.
func (e *secondEngine) stop(t *testing.T, how syscall.Signal) {
	t.Helper()
	if e.pid == 0 {
		return
	}
	if err := syscall.Kill(e.pid, how); err != nil {
		t.Errorf("end the second engine: %v", err)
	}
	select {
	case <-e.ended:
		e.pid = 0
	case <-time.After(2 * time.Minute):
		t.Fatal("the second engine does not end")
	}
	// Its containerd dies with it. What is dead but not reaped has no executable;
	// to the next dockerd it would be running still, by its pid file.
	file := filepath.Join(e.dir, "run/containerd/containerd.pid")
	pid, err := os.ReadFile(file)
	if err != nil {
		return // it has ended in an orderly way
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Readlink("/proc/" + string(pid) + "/exe"); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the containerd of the second engine does not end")
		}
	}
	_ = os.Remove(file)
	_ = os.Remove(filepath.Join(e.dir, "pid"))
}

// remove ends it for good and removes what it had.
func (e *secondEngine) remove(t *testing.T) {
	e.stop(t, syscall.SIGTERM)
	e.killLeft()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, e.dir+"/") {
			_ = syscall.Unmount(at, syscall.MNT_DETACH) // whether it worked, RemoveAll shows
		}
	}
	if err := errors.Join(e.ns.Close(), os.RemoveAll(e.dir)); err != nil {
		t.Errorf("remove the second engine: %v", err)
	}
}

// killLeft kills the containers that a failed test has left without their engine.
func (e *secondEngine) killLeft() {
	commands, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range commands {
		command, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(command), "-namespace\x00"+filepath.Base(e.dir)+"\x00") {
			continue
		}
		shim := filepath.Dir(file)
		children, _ := filepath.Glob(shim + "/task/*/children")
		var pids []string
		for _, list := range children {
			of, _ := os.ReadFile(list)
			pids = append(pids, strings.Fields(string(of))...)
		}
		for _, field := range append(pids, filepath.Base(shim)) {
			if pid, err := strconv.Atoi(field); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// dial connects within the engine's network namespace, to an address.
func (e *secondEngine) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = within(e.ns, func() (err error) {
		c, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// command runs a program within the engine's network namespace.
func (e *secondEngine) command(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out []byte
	err := within(e.ns, func() (err error) {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err
	})
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// newNamespace makes a network namespace with loopback alone.
func newNamespace() (ns netns.NsHandle, err error) {
	here, err := netns.Get()
	if err != nil {
		return -1, err
	}
	defer here.Close()
	err = within(here, func() error {
		if ns, err = netns.New(); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(lo)
	})
	if err != nil {
		return -1, fmt.Errorf("make a network namespace: %w", err)
	}
	return ns, nil
}

// within calls f on a thread that is in a network namespace.
func within(ns netns.NsHandle, f func() error) error {
	done := make(chan error)
	go func() {
		// Never unlocked, so that the thread ends with this goroutine and nobody
		// else gets one that is in the wrong place.
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			done <- fmt.Errorf("enter a network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// namespaceOf is the network namespace of a container.
func namespaceOf(t *testing.T, container string) netns.NsHandle {
	t.Helper()
	var pid int
	if _, err := fmt.Sscan(docker(t, "inspect", "-f", "{{.State.Pid}}", container), &pid); err != nil {
		t.Fatal(err)
	}
	ns, err := netns.GetFromPid(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}
