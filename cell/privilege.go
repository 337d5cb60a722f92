package cell

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Drop gives up every privilege for good and replaces the process by argv[0],
// which is a path. The bounding set is emptied, no_new_privs set, all groups and
// capabilities dropped. It needs CAP_SETUID, CAP_SETGID and CAP_SETPCAP, and
// returns only with an error, after which the process must exit.
//
// It replaces the process because credentials belong to threads: the new one
// starts with those of the thread that did this, and carries no memory of what
// the old one used.
func Drop(uid, gid int, argv, env []string) error {
	if uid <= 0 || gid <= 0 {
		return fmt.Errorf("user %d and group %d: neither may be root", uid, gid)
	}
	runtime.LockOSThread()
	last, err := lastCapability()
	if err != nil {
		return err
	}
	for c := range last + 1 {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear the ambient capabilities: %w", err)
	}
	if err := become(uid, gid); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return fmt.Errorf("run %s: %w", argv[0], unix.Exec(argv[0], argv, env))
}

// become changes user and group of this thread alone and empties its capability
// sets, the inheritable one too.
func become(uid, gid int) error {
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("drop the supplementary groups: %w", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return fmt.Errorf("become group %d: %w", gid, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return fmt.Errorf("become user %d: %w", uid, e)
	}
	var none [2]unix.CapUserData
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("empty the capability sets: %w", err)
	}
	return nil
}

func lastCapability() (int, error) {
	for c := 0; c < 64; c++ {
		_, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return c - 1, nil
		}
		if err != nil {
			return 0, fmt.Errorf("read the bounding set: %w", err)
		}
	}
	return 63, nil
}

// Hold is the rest of a keeper's life: it verifies that the process has no
// privilege left, writes "ready\n" and waits for ctx to end.
func Hold(ctx context.Context, stdout io.Writer) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fmt.Errorf("read own privileges: %w", err)
	}
	if err := powerless(status); err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, "ready\n"); err != nil {
		return fmt.Errorf("say ready: %w", err)
	}
	debug.FreeOSMemory()
	<-ctx.Done()
	return nil
}

// powerless reads the lines of /proc/self/status (proc(5)) that tell of
// privileges; one that is missing or not as it should be is an error.
func powerless(status []byte) error {
	want := map[string]func(v string) bool{
		"Uid":        func(v string) bool { return noneIs(v, "0") },
		"Gid":        func(v string) bool { return noneIs(v, "0") },
		"Groups":     func(v string) bool { return v == "" },
		"CapInh":     zero,
		"CapPrm":     zero,
		"CapEff":     zero,
		"CapBnd":     zero,
		"CapAmb":     zero,
		"NoNewPrivs": func(v string) bool { return v == "1" },
	}
	lines := bufio.NewScanner(bytes.NewReader(status))
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		ok, known := want[key]
		if !known {
			continue
		}
		if value = strings.TrimSpace(value); !ok(value) {
			return fmt.Errorf("a privilege is left: %s is %q", key, value)
		}
		delete(want, key)
	}
	for key := range want {
		return fmt.Errorf("the kernel does not tell %s", key)
	}
	return nil
}

func zero(v string) bool { return v != "" && strings.Trim(v, "0") == "" }

func noneIs(v, bad string) bool {
	fields := strings.Fields(v)
	for _, f := range fields {
		if f == bad {
			return false
		}
	}
	return len(fields) == 4
}
