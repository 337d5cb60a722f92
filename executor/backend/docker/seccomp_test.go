package docker

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var update = flag.Bool("update", false, "write the golden files")

func profile(t *testing.T) *seccomp.Seccomp {
	t.Helper()
	b, err := seccompProfile()
	if err != nil {
		t.Fatal(err)
	}
	var p seccomp.Seccomp
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestSeccompProfileIsReviewed shows every change of the profile, also one that
// comes with a new version of the engine's default, as a change of a file.
func TestSeccompProfileIsReviewed(t *testing.T) {
	b, err := seccompProfile()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, b, "", " "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	golden := filepath.Join("testdata", "seccomp.json")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("the profile is not that of %s: review it, then run the test with -update", golden)
	}
}

// never are the calls that no sandbox gets, and judged those that it gets with some arguments
// only: written out here once more, not taken from the code that they hold.
var (
	never = strings.Fields(`
		io_uring_setup io_uring_enter io_uring_register
		io_setup io_submit io_getevents io_pgetevents io_pgetevents_time64 io_cancel io_destroy
		userfaultfd keyctl add_key request_key bpf perf_event_open name_to_handle_at open_by_handle_at
		unshare setns mount umount umount2 move_mount open_tree open_tree_attr fsopen fsconfig fsmount fspick
		mount_setattr pivot_root chroot pidfd_getfd kcmp socketcall ipc acct quotactl quotactl_fd swapon swapoff
		reboot kexec_load kexec_file_load init_module finit_module delete_module iopl ioperm syslog settimeofday
		clock_settime sethostname setdomainname vhangup lookup_dcookie fanotify_init`)
	judged = strings.Fields(`socket socketpair setsockopt sendto send sendmsg sendmmsg prlimit64 setrlimit`)
)

// TestSeccompDenies reads the profile.
//
// probe: C5
// oracle: the profile, evaluated for each call; ordinary ones pass
func TestSeccompDenies(t *testing.T) {
	p := profile(t)
	if p.DefaultAction != specs.ActErrno {
		t.Errorf("default action %s", p.DefaultAction)
	}
	for _, arch := range p.ArchMap {
		if len(arch.SubArches) != 0 {
			t.Errorf("%s has sub-architectures %v", arch.Arch, arch.SubArches)
		}
	}
	for _, rule := range p.Syscalls {
		if rule.Includes != nil && len(rule.Includes.Caps) != 0 {
			t.Errorf("a rule for a capability: %+v", rule)
		}
	}
	rules := byName(p)
	for _, name := range never {
		if rules[name] != nil {
			t.Errorf("%s is allowed", name)
		}
	}
	for _, name := range judged {
		if len(rules[name]) == 0 {
			t.Errorf("%s is never allowed", name)
		}
		for _, rule := range rules[name] {
			if len(rule.Args) == 0 {
				t.Errorf("%s is allowed with any argument", name)
			}
		}
	}
	for _, name := range []string{"clone", "execve", "openat", "connect", "recvfrom", "ptrace", "futex", "mmap", "getrlimit", "mknodat"} {
		if !rules.permit(name, 0, 0, 0, 0, 0, 0) {
			t.Errorf("%s is not allowed", name)
		}
	}
}

// A table is a profile by the names of calls.
type table map[string][]*seccomp.Syscall

func byName(p *seccomp.Seccomp) table {
	rules := make(table)
	for _, rule := range p.Syscalls {
		for _, name := range rule.Names {
			rules[name] = append(rules[name], rule)
		}
	}
	return rules
}

// action evaluates the profile as the kernel does: the arguments are whole registers.
func (rules table) action(name string, args ...uint64) string {
	for _, rule := range rules[name] {
		if slices.ContainsFunc(rule.Args, func(a specs.LinuxSeccompArg) bool {
			switch v := args[a.Index]; a.Op {
			case specs.OpMaskedEqual:
				return v&a.Value != a.ValueTwo
			case specs.OpNotEqual:
				return v == a.Value
			default:
				return true
			}
		}) {
			continue
		}
		switch {
		case rule.Action == specs.ActAllow:
			return "allow"
		case rule.Action == specs.ActErrno && rule.ErrnoRet != nil && *rule.ErrnoRet == 0:
			return "pretend"
		}
	}
	return "refuse"
}

func (rules table) permit(name string, args ...uint64) bool {
	return rules.action(name, args...) == "allow"
}

// uppers are bits of a register that the kernel ignores in an int.
var uppers = []uint64{0, 1 << 32, 1 << 63, 0xffffffff << 32}

// TestSeccompArguments tries every option and flag, also with bits set that the
// kernel ignores.
//
// probe: X2, N11
// oracle: the profile, evaluated as the kernel does
func TestSeccompArguments(t *testing.T) {
	rules := byName(profile(t))
	refused := []uint64{unix.SO_DONTROUTE, unix.SO_BINDTODEVICE, unix.SO_BINDTOIFINDEX}
	for _, upper := range uppers {
		for option := range uint64(256) {
			want := option < 128 && !slices.Contains(refused, option)
			for _, level := range []uint64{unix.SOL_SOCKET, unix.SOL_SOCKET | upper} {
				if got := rules.permit("setsockopt", 3, level, option|upper, 0, 4); got != want {
					t.Errorf("setsockopt level %#x option %#x: %v", level, option|upper, got)
				}
			}
			if !rules.permit("setsockopt", 3, unix.IPPROTO_TCP|upper, option, 0, 4) {
				t.Errorf("setsockopt TCP %d is refused", option)
			}
		}
		for flags := range uint64(1 << 16) {
			want := flags&unix.MSG_DONTROUTE == 0
			if rules.permit("sendto", 3, 0, 0, flags|upper) != want || rules.permit("sendmsg", 3, 0, flags|upper) != want ||
				rules.permit("sendmmsg", 3, 0, 0, flags|upper) != want {
				t.Fatalf("send with flags %#x: not %v", flags|upper, want)
			}
		}
	}
}

// ordinary are the sockets that programs may have, by family, type and protocol. Local ones
// know no protocols.
var ordinary = map[[3]uint64]bool{
	{unix.AF_INET, unix.SOCK_STREAM, 0}: true, {unix.AF_INET, unix.SOCK_STREAM, 6}: true,
	{unix.AF_INET, unix.SOCK_DGRAM, 0}: true, {unix.AF_INET, unix.SOCK_DGRAM, 17}: true,
	{unix.AF_INET6, unix.SOCK_STREAM, 0}: true, {unix.AF_INET6, unix.SOCK_STREAM, 6}: true,
	{unix.AF_INET6, unix.SOCK_DGRAM, 0}: true, {unix.AF_INET6, unix.SOCK_DGRAM, 17}: true,
	{unix.AF_NETLINK, unix.SOCK_RAW, 0}: true, {unix.AF_NETLINK, unix.SOCK_DGRAM, 0}: true,
}

// TestSeccompSockets asks for sockets, and pairs of them, of every family, type, flag and
// protocol.
//
// probe: N11, C5
// oracle: the profile, evaluated as the kernel does, beside a list of the ordinary ones
func TestSeccompSockets(t *testing.T) {
	rules := byName(profile(t))
	flags := []uint64{0, unix.SOCK_CLOEXEC, unix.SOCK_NONBLOCK, unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK}
	for family := range uint64(64) {
		for kind := range uint64(16) {
			local := family == unix.AF_UNIX && (kind == unix.SOCK_STREAM || kind == unix.SOCK_DGRAM || kind == unix.SOCK_SEQPACKET)
			for _, flag := range flags {
				for _, upper := range uppers {
					for _, protocol := range []uint64{0, 1, 2, 6, 15, 16, 17, 33, 58, 132, 136, 255, 262} {
						want := local || ordinary[[3]uint64{family, kind, protocol}]
						if rules.permit("socket", family|upper, kind|flag|upper, protocol|upper) != want {
							t.Fatalf("socket family %d type %d flags %#x protocol %d: not %v", family, kind, flag|upper, protocol, want)
						}
					}
					if rules.permit("socketpair", family|upper, kind|flag|upper, 0, 0) != local {
						t.Fatalf("socketpair family %d type %d flags %#x: not %v", family, kind, flag|upper, local)
					}
				}
			}
			for _, flag := range []uint64{1 << 4, 1 << 12, 1 << 20, 1 << 31} { // which the kernel does not know
				if rules.permit("socket", family, kind|flag, 0) || rules.permit("socketpair", family, kind|flag, 0, 0) {
					t.Fatalf("family %d type %#x is permitted", family, kind|flag)
				}
			}
		}
	}
}

// TestSeccompLimits sets limits of the process itself and of others.
//
// probe: C15, C16
// oracle: the profile, evaluated as the kernel does
func TestSeccompLimits(t *testing.T) {
	rules := byName(profile(t))
	const limit, old = 0xc000012340, 0xc000012350 // addresses
	for _, upper := range uppers {
		for resource := range uint64(16) {
			want := "allow"
			if resource == unix.RLIMIT_CORE {
				want = "pretend"
			}
			if got := rules.action("setrlimit", resource|upper, limit); got != want {
				t.Errorf("setrlimit %d: %s, want %s", resource, got, want)
			}
			for _, call := range []struct {
				name string
				args [4]uint64
				want string
			}{
				{"set one's own", [4]uint64{0 | upper, resource | upper, limit, 0}, want},
				{"look at one's own", [4]uint64{0 | upper, resource | upper, 0, old}, "allow"},
				{"look at PID 1's", [4]uint64{1 | upper, resource | upper, 0, old}, "allow"},
				{"set PID 1's", [4]uint64{1 | upper, resource | upper, limit, 0}, "refuse"},
				{"set PID 1's, by an address with a low half of zeroes", [4]uint64{1 | upper, resource | upper, 1 << 32, 0}, "refuse"},
				{"set another's", [4]uint64{4711 | upper, resource | upper, limit, old}, "refuse"},
			} {
				if got := rules.action("prlimit64", call.args[:]...); got != call.want {
					t.Errorf("prlimit64, %s, %d: %s, want %s", call.name, resource, got, call.want)
				}
			}
		}
	}
	// The answer would have to be made up.
	if got := rules.action("prlimit64", 0, unix.RLIMIT_CORE, limit, old); got != "refuse" {
		t.Errorf("prlimit64, set the limit of core dumps and ask for the one before: %s", got)
	}
}
