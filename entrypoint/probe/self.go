package probe

import (
	"bufio"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Self is what a process finds out about itself and its surroundings.
type Self struct {
	PID    int   `json:"pid"`
	UID    int   `json:"uid"`
	GID    int   `json:"gid"`
	Groups []int `json:"groups"`
	// The capability sets as the kernel writes them: 16 hexadecimal digits.
	CapInh     string `json:"capInh"`
	CapPrm     string `json:"capPrm"`
	CapEff     string `json:"capEff"`
	CapBnd     string `json:"capBnd"`
	CapAmb     string `json:"capAmb"`
	NoNewPrivs bool   `json:"noNewPrivs"`
	// Seccomp is the kernel's mode: 2 means a filter.
	Seccomp int `json:"seccomp"`
	// FDs are the descriptors that the process was started with.
	FDs []int `json:"fds"`
	// EnvNames are the names in the environment, sorted.
	EnvNames []string `json:"envNames"`
	// Sockets are unix sockets that can be seen: engine sockets in their usual
	// places and sockets in the abstract namespace, which begin with "@".
	Sockets []string `json:"sockets"`
	// Mounts are the mount points with their file system and "rw" or "ro".
	Mounts []string `json:"mounts"`
	// RootWritable says that a file could be made in /, /etc, /usr or /var.
	RootWritable bool `json:"rootWritable"`
	// Addresses are those of the network devices, as DEVICE=ADDRESS/BITS.
	Addresses []string `json:"addresses"`
	// Processes is how many processes /proc shows.
	Processes int    `json:"processes"`
	Hostname  string `json:"hostname"`
}

// engineSockets are where container engines listen.
var engineSockets = []string{
	"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock",
	"/run/crio/crio.sock", "/run/buildkit/buildkitd.sock", "/run/sallyport/control.sock",
}

func readSelf() *Self {
	s := &Self{PID: os.Getpid(), UID: os.Getuid(), GID: os.Getgid(), FDs: descriptors()}
	s.Groups, _ = os.Getgroups() // fails only on a fault of the kernel's
	s.readStatus()
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		s.EnvNames = append(s.EnvNames, name)
	}
	slices.Sort(s.EnvNames)
	s.Sockets = sockets()
	slices.Sort(s.Sockets)
	s.Sockets = slices.Compact(s.Sockets)
	s.Mounts = mounts()
	for _, dir := range []string{"/", "/etc", "/usr", "/var"} {
		s.RootWritable = s.RootWritable || unix.Access(dir, unix.W_OK) == nil
	}
	for _, d := range allDevices() {
		addrs, _ := d.Addrs()
		for _, a := range addrs {
			s.Addresses = append(s.Addresses, d.Name+"="+a.String())
		}
	}
	for _, name := range list("/proc") {
		if _, err := strconv.Atoi(name); err == nil {
			s.Processes++
		}
	}
	s.Hostname, _ = os.Hostname()
	return s
}

func (s *Self) readStatus() {
	into := map[string]*string{
		"CapInh": &s.CapInh, "CapPrm": &s.CapPrm, "CapEff": &s.CapEff, "CapBnd": &s.CapBnd, "CapAmb": &s.CapAmb,
	}
	for _, line := range readLines("/proc/self/status") {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case into[key] != nil:
			*into[key] = value
		case key == "NoNewPrivs":
			s.NoNewPrivs = value == "1"
		case key == "Seccomp":
			s.Seccomp, _ = strconv.Atoi(value)
		}
	}
}

// descriptors asks for each number whether it is open. Those that would not have
// outlived the start of this program are its own.
func descriptors() []int {
	found := []int{}
	for fd := range 1024 {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			found = append(found, fd)
		}
	}
	return found
}

func sockets() []string {
	var found []string
	for _, name := range engineSockets {
		if _, err := os.Stat(name); err == nil {
			found = append(found, name)
		}
	}
	for i, line := range readLines("/proc/net/unix") {
		if f := strings.Fields(line); i > 0 && len(f) >= 8 {
			found = append(found, f[7])
		}
	}
	return found
}

// mounts reads /proc/self/mounts (fstab(5)): device, place, type, options.
func mounts() []string {
	var found []string
	for _, line := range readLines("/proc/self/mounts") {
		if f := strings.Fields(line); len(f) >= 4 {
			mode, _, _ := strings.Cut(f[3], ",")
			found = append(found, f[1]+" "+f[2]+" "+mode)
		}
	}
	return found
}

func allDevices() []net.Interface {
	all, _ := net.Interfaces() // none is an answer, too
	return all
}

func list(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(100_000)
	return names
}

func readLines(name string) []string {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	var lines []string
	for s := bufio.NewScanner(f); s.Scan() && len(lines) < 4096; {
		lines = append(lines, s.Text())
	}
	return lines
}
