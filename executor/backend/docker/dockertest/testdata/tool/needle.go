package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A needle is what leave leaves and hunt looks for. No program holds one by itself.
var needle = regexp.MustCompile(`needle-[0-9a-f]{40}`)

const (
	leftKey    = 0x5a11 // of shared memory
	leftName   = "left-behind"
	leftSocket = "@" + leftName
)

// places are where a process can leave something that outlives it.
var places = []string{"/tmp", "/dev/shm", "/run/sallyport", "/home/agent", "/workspace", "/var/tmp", "/dev"}

// leave puts the needle of its environment wherever it can, and prints why it could not
// where it could not, "" where it could.
func leave() error {
	value := []byte(needle.FindString(strings.Join(os.Environ(), "\n")))
	if len(value) == 0 {
		return errors.New("there is no needle in the environment")
	}
	results := map[string]string{}
	try := func(name string, err error) {
		results[name] = ""
		if err != nil {
			results[name] = err.Error()
		}
	}
	for _, dir := range places {
		try("file "+dir, os.WriteFile(filepath.Join(dir, leftName), value, 0o666))
	}
	try("shared memory", leaveShared(value))
	try("message queue", leaveMessage(value))
	for name, ring := range map[string]int{"session keyring": unix.KEY_SPEC_SESSION_KEYRING, "user keyring": unix.KEY_SPEC_USER_KEYRING} {
		_, err := unix.AddKey("user", leftName, value, ring)
		try(name, err)
	}
	keeper := exec.Command("/proc/self/exe", "keep")
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	said, err := keeper.StdoutPipe()
	if err == nil {
		err = keeper.Start()
	}
	if err == nil {
		_, err = said.Read(make([]byte, 1)) // it listens
	}
	try("process", err)
	return json.NewEncoder(os.Stdout).Encode(results)
}

// keep is a process that outlives who started it, with the needle in its environment, and
// gives it to whoever connects.
func keep() error {
	l, err := net.Listen("unix", leftSocket)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		io.WriteString(c, needle.FindString(strings.Join(os.Environ(), "\n")))
		c.Close()
	}
}

func leaveShared(value []byte) error {
	id, err := unix.SysvShmGet(leftKey, 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		return err
	}
	memory, err := unix.SysvShmAttach(id, 0, 0)
	if err == nil {
		copy(memory, value)
	}
	return err
}

func openQueue(flags uintptr) (uintptr, error) {
	name := append([]byte(leftName), 0)
	attr := [8]int64{0, 1, 64} // flags, messages, bytes of one
	fd, _, errno := syscall.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&name[0])), flags, 0o666, uintptr(unsafe.Pointer(&attr)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return fd, nil
}

func leaveMessage(value []byte) error {
	fd, err := openQueue(unix.O_CREAT | unix.O_RDWR | unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	_, _, errno := syscall.Syscall6(unix.SYS_MQ_TIMEDSEND, fd, uintptr(unsafe.Pointer(&value[0])), uintptr(len(value)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// hunt looks for needles and prints the places where there is one, and the needles.
func hunt() error {
	found := map[string]string{}
	look := func(place string, data []byte) {
		if n := needle.Find(data); n != nil {
			found[place] = string(n)
		}
	}
	huntProcesses(look)
	huntFiles(look)
	if names, err := os.ReadFile("/proc/net/unix"); err == nil && bytes.Contains(names, []byte(leftSocket)) {
		found["name of a socket"] = leftSocket
	}
	if c, err := net.DialTimeout("unix", leftSocket, time.Second); err == nil {
		said, _ := io.ReadAll(c)
		look("socket", said)
	}
	if id, err := unix.SysvShmGet(leftKey, 4096, 0o666); err == nil {
		if memory, err := unix.SysvShmAttach(id, 0, unix.SHM_RDONLY); err == nil {
			look("shared memory", memory)
		}
	}
	if fd, err := openQueue(unix.O_RDWR | unix.O_NONBLOCK); err == nil {
		message := make([]byte, 64)
		syscall.Syscall6(unix.SYS_MQ_TIMEDRECEIVE, fd, uintptr(unsafe.Pointer(&message[0])), 64, 0, 0, 0)
		look("message queue", message)
	}
	for name, ring := range map[string]int{"session keyring": unix.KEY_SPEC_SESSION_KEYRING, "user keyring": unix.KEY_SPEC_USER_KEYRING} {
		if id, err := unix.KeyctlSearch(ring, "user", leftName, 0); err == nil {
			value := make([]byte, 64)
			unix.KeyctlBuffer(unix.KEYCTL_READ, id, value, 0)
			look(name, value)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func huntProcesses(look func(string, []byte)) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range processes {
		for _, name := range []string{"environ", "cmdline"} {
			data, _ := os.ReadFile(filepath.Join(dir, name)) // PID 1 does not show its own
			who := "another process"
			switch filepath.Base(dir) {
			case fmt.Sprint(os.Getpid()):
				who = "itself"
			case "1":
				who = "pid 1"
			}
			look(name+" of "+who, data)
		}
	}
}

// huntFiles looks into every file that can be read, but for those of the kernel, and at
// every name.
func huntFiles(look func(string, []byte)) {
	const most = 1 << 20 // bytes of a file
	filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case slices.Contains([]string{"/proc", "/sys"}, path):
			return fs.SkipDir
		case err != nil:
			return nil
		}
		look("name "+filepath.Dir(path), []byte(path))
		if !d.Type().IsRegular() {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return nil
		}
		defer f.Close()
		data, _ := io.ReadAll(io.LimitReader(f, most))
		look("file "+filepath.Dir(path), data)
		return nil
	})
}
