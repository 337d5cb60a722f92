package docker

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
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
		for _, name := range rule.Names {
			if slices.Contains(denied, name) {
				t.Errorf("%s is allowed", name)
			}
			if slices.Contains(filtered, name) && len(rule.Args) == 0 {
				t.Errorf("%s is allowed with any argument", name)
			}
		}
	}
	for _, name := range []string{"clone", "execve", "openat", "connect", "recvfrom", "ptrace", "futex", "mmap", "socketpair", "mknodat"} {
		if !slices.ContainsFunc(p.Syscalls, func(s *seccomp.Syscall) bool {
			return s.Action == specs.ActAllow && slices.Contains(s.Names, name)
		}) {
			t.Errorf("%s is not allowed", name)
		}
	}
}

// permits evaluates the profile as the kernel does: the arguments are whole
// registers.
func permits(p *seccomp.Seccomp, name string, args ...uint64) bool {
	return slices.ContainsFunc(p.Syscalls, func(s *seccomp.Syscall) bool {
		return s.Action == specs.ActAllow && slices.Contains(s.Names, name) &&
			!slices.ContainsFunc(s.Args, func(a specs.LinuxSeccompArg) bool {
				return a.Op != specs.OpMaskedEqual || args[a.Index]&a.Value != a.ValueTwo
			})
	})
}

// TestSeccompArguments tries every option and flag, also with bits set that the
// kernel ignores.
//
// probe: X2, N11
// oracle: the profile, evaluated as the kernel does
func TestSeccompArguments(t *testing.T) {
	p := profile(t)
	refused := []uint64{unix.SO_DONTROUTE, unix.SO_BINDTODEVICE, unix.SO_BINDTOIFINDEX}
	for _, upper := range []uint64{0, 1 << 32, 1 << 63, 0xffffffff << 32} {
		for option := range uint64(256) {
			want := option < 128 && !slices.Contains(refused, option)
			for _, level := range []uint64{unix.SOL_SOCKET, unix.SOL_SOCKET | upper} {
				if got := permits(p, "setsockopt", 3, level, option|upper, 0, 4); got != want {
					t.Errorf("setsockopt level %#x option %#x: %v", level, option|upper, got)
				}
			}
			if !permits(p, "setsockopt", 3, unix.IPPROTO_TCP|upper, option, 0, 4) {
				t.Errorf("setsockopt TCP %d is refused", option)
			}
		}
		for flags := range uint64(1 << 16) {
			want := flags&unix.MSG_DONTROUTE == 0
			if permits(p, "sendto", 3, 0, 0, flags|upper) != want || permits(p, "sendmsg", 3, 0, flags|upper) != want ||
				permits(p, "sendmmsg", 3, 0, 0, flags|upper) != want {
				t.Fatalf("send with flags %#x: not %v", flags|upper, want)
			}
		}
		for family := range uint64(64) {
			for protocol := range uint64(300) {
				internet := family == unix.AF_INET || family == unix.AF_INET6
				want := family == unix.AF_UNIX || family == unix.AF_NETLINK && protocol == 0 ||
					internet && (protocol == 0 || protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP)
				if permits(p, "socket", family|upper, unix.SOCK_STREAM, protocol|upper) != want {
					t.Errorf("socket family %d protocol %d: not %v", family, protocol, want)
				}
			}
		}
	}
}
