package tree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/executor/tree"
)

// roleVariable makes the test binary a process that looks at or removes a tree.
const roleVariable = "SALLYPORT_TEST_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(role, os.Args[1]); err != nil {
		fmt.Println(err)
	}
	fmt.Println(highWater())
}

// play does one thing with hardly more descriptors than a process has anyway.
func play(role, dir string) error {
	few := unix.Rlimit{Cur: 40, Max: 40}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		return err
	}
	switch role {
	case "measure":
		d, err := tree.Open(dir)
		if err != nil {
			return err
		}
		defer d.Close()
		size, err := d.Measure(context.Background(), everything)
		fmt.Println(size.Entries)
		return err
	case "mounted":
		at := filepath.Join(dir, strings.Repeat("chain-5/", 30))
		if err := unix.Mount(at, at, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		return tree.Remove(context.Background(), dir)
	}
	return tree.Remove(context.Background(), dir)
}

// highWater is the most memory that the process has had, in KiB.
func highWater() string {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSuffix(strings.TrimSpace(kb), " kB")
		}
	}
	return "no VmHWM"
}

// maxMemory is what a process that walks may have, in KiB: what Go's runtime takes
// for a start, and little more.
const maxMemory = 40 << 10

// child plays a role in a process with mounts of its own and returns what it said,
// once it has shown to have stayed below maxMemory.
func child(t *testing.T, role, dir string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], dir)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if os.Getuid() != 0 {
		id := []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWUSER, UidMappings: id}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	said := strings.TrimSpace(string(out))
	last := said[strings.LastIndexByte(said, '\n')+1:]
	if kb, err := strconv.Atoi(last); err != nil || kb > maxMemory {
		t.Errorf("%s took %s KiB of memory, want at most %d", role, last, maxMemory)
	} else {
		t.Logf("%s took %d KiB", role, kb)
	}
	return strings.TrimSpace(strings.TrimSuffix(said, last))
}

// TestBounds measures and removes trees of unkind shapes in a process with few
// descriptors.
//
// probe: C13
// oracle: the kernel's count of that process's memory, its limit of descriptors, and
// what is left
func TestBounds(t *testing.T) {
	long := strings.Repeat("l", 250)
	for _, tt := range []struct {
		name  string
		grow  func(t *testing.T, dir string)
		saw   string
		depth bool // the tree is deeper than it is looked into
	}{
		{name: "deep", grow: func(t *testing.T, dir string) { nest(t, dir, long, 20000) }, depth: true},
		{name: "deep within the bound", grow: func(t *testing.T, dir string) { nest(t, dir, long, tree.MaxDepth) }, saw: "1000"},
		{name: "wide", grow: func(t *testing.T, dir string) { widen(t, dir, 100_000) }, saw: "100000"},
		{name: "both", grow: func(t *testing.T, dir string) {
			nest(t, dir, long, 500)
			widen(t, filepath.Join(dir, long, long, long), 20_000)
		}, saw: "20500"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "top")
			must(t, os.Mkdir(dir, 0o700))
			tt.grow(t, dir)
			switch said := child(t, "measure", dir); {
			case tt.depth:
				if !strings.Contains(said, tree.ErrDeep.Error()) {
					t.Errorf("measure says %q", said)
				}
			case said != tt.saw:
				t.Errorf("measure says %q, want %s", said, tt.saw)
			}
			if said := child(t, "remove", dir); said != "" {
				t.Errorf("remove says %q", said)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the tree is still there: %v", err)
			}
		})
	}
}

// widen makes files with long names in a directory.
func widen(t *testing.T, dir string, files int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	pad := strings.Repeat("w", 240)
	for i := range files {
		f, err := unix.Openat(fd, pad+strconv.Itoa(i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		must(t, err)
		unix.Close(f)
	}
}

func TestSpace(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/dev/shm"} {
		s, err := tree.SpaceAt(dir)
		if err != nil || s.Bytes <= 0 || s.Inodes <= 0 || s.AllInodes < s.Inodes {
			t.Errorf("%s: %+v, %v", dir, s, err)
		}
	}
	if s, err := tree.SpaceAt("/proc"); err != nil || s.Bytes != 1<<63-1 || s.Inodes != 1<<63-1 {
		t.Errorf("a file system that has no space to speak of: %+v, %v", s, err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "tree-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	before, err := tree.SpaceAt(dir)
	must(t, err)
	f, err := os.Create(filepath.Join(dir, "unlinked"))
	must(t, err)
	defer f.Close()
	must(t, os.Remove(f.Name()))
	_, err = f.Write(make([]byte, 1<<20))
	must(t, err)
	after, err := tree.SpaceAt(dir)
	if took := before.Bytes - after.Bytes; err != nil || took < 1<<20 {
		t.Errorf("an unlinked file of 1 MiB took %d bytes: %v", took, err)
	}
}
