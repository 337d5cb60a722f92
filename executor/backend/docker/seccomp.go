package docker

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// denied are the system calls that a sandbox never gets, whatever the engine's
// default profile comes to say of them. Most are absent from it already; they are
// named so that a new version of the profile cannot bring them back.
var denied = []string{
	// Asynchronous calls that run outside this filter: a send by io_uring is not
	// seen by the rules for sendto below. Also a steady source of kernel faults.
	"io_uring_setup", "io_uring_enter", "io_uring_register",
	// The older kind: its events come out of one number for the whole host.
	"io_setup", "io_submit", "io_getevents", "io_pgetevents", "io_pgetevents_time64", "io_cancel", "io_destroy",
	// Stops the kernel at a page fault of the caller's choice: the tool that turns
	// races in the kernel into exploits.
	"userfaultfd",
	// The kernel's keyrings know no namespaces: they are shared with the host.
	"keyctl", "add_key", "request_key",
	// Programs and counters inside the kernel.
	"bpf", "perf_event_open",
	// Files by handle instead of by path reach outside the mount namespace
	// (the 2014 "shocker" escape); the first of the two makes the handles.
	"name_to_handle_at", "open_by_handle_at",
	// Namespaces and mounts: a new user namespace gives every capability inside it,
	// and with them the attack surface of the whole kernel.
	"unshare", "setns", "mount", "umount", "umount2", "move_mount", "open_tree", "open_tree_attr",
	"fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "pivot_root", "chroot",
	// Another process's descriptors.
	"pidfd_getfd", "kcmp",
	// One call for many, with the arguments in memory where no filter sees them.
	"socketcall", "ipc",
	// Root's business; without capabilities they fail anyhow.
	"acct", "quotactl", "quotactl_fd", "swapon", "swapoff", "reboot", "kexec_load", "kexec_file_load",
	"init_module", "finit_module", "delete_module", "iopl", "ioperm", "syslog", "settimeofday",
	"clock_settime", "sethostname", "setdomainname", "vhangup", "lookup_dcookie", "fanotify_init",
}

// filtered are allowed by the default profile with any argument and get rules of
// our own instead.
var filtered = []string{"socket", "setsockopt", "sendto", "send", "sendmsg", "sendmmsg"}

// seccompProfile is the profile of every sandbox, as the engine takes it: the
// engine's default for a process without capabilities, less denied, with argument
// rules for sockets. It applies to the machine's own architecture only: a 32-bit
// program would reach the kernel by calls whose arguments cannot be filtered.
func seccompProfile() ([]byte, error) {
	p := seccomp.DefaultProfile()
	for i := range p.ArchMap {
		p.ArchMap[i].SubArches = []specs.Arch{}
	}
	var rules []*seccomp.Syscall
	for _, rule := range p.Syscalls {
		if rule.Includes != nil && len(rule.Includes.Caps) > 0 {
			continue // for a capability that no sandbox ever has
		}
		if rule.Excludes != nil {
			rule.Excludes.Caps = nil
		}
		rule.Names = slices.DeleteFunc(rule.Names, func(name string) bool {
			return slices.Contains(denied, name) || slices.Contains(filtered, name)
		})
		if len(rule.Names) > 0 {
			rules = append(rules, rule)
		}
	}
	p.Syscalls = slices.Concat(rules, socketRules(), optionRules(), sendRules())
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("docker: seccomp profile: %w", err)
	}
	return b, nil
}

// socketRules allow the address families that programs need: local sockets, IPv4
// and IPv6 with TCP and UDP, and routing netlink (glibc and Go list interfaces by
// it). Not AF_PACKET and raw sockets (frames past the cell's filter), AF_VSOCK
// (the hypervisor, which no network namespace bounds), AF_ALG, and the rest, each
// with its own faults in the kernel. ICMP is not among the protocols: nothing in a
// cell answers it.
func socketRules() []*seccomp.Syscall {
	rules := []*seccomp.Syscall{
		allow([]string{"socket"}, equal(0, unix.AF_UNIX)),
		allow([]string{"socket"}, equal(0, unix.AF_NETLINK), equal(2, unix.NETLINK_ROUTE)),
	}
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range []uint32{unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			rules = append(rules, allow([]string{"socket"}, equal(0, family), equal(2, protocol)))
		}
	}
	return rules
}

// optionRules allow the socket options of the levels in use but for the three by
// which a program without capabilities makes the kernel take any address for one
// on the link, past the routing table: SO_DONTROUTE, SO_BINDTODEVICE and
// SO_BINDTOIFINDEX. (Measured: with them, UDP from a network without a host
// address reaches the host's wildcard listeners. The cell's filter stops that by
// itself; this is the second wall.)
func optionRules() []*seccomp.Syscall {
	names := []string{"setsockopt"}
	var rules []*seccomp.Syscall
	for _, level := range []uint32{
		unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_IPV6, unix.IPPROTO_ICMPV6,
		unix.SOL_NETLINK, unix.SOL_TLS,
	} {
		rules = append(rules, allow(names, equal(1, level)))
	}
	const options = 128 // the kernel's socket options are numbered below this
	next := uint32(0)
	for _, refused := range []uint32{unix.SO_DONTROUTE, unix.SO_BINDTODEVICE, unix.SO_BINDTOIFINDEX, options} {
		for _, option := range blocks(2, next, refused) {
			rules = append(rules, allow(names, equal(1, unix.SOL_SOCKET), option))
		}
		next = refused + 1
	}
	return rules
}

// sendRules allow sending without MSG_DONTROUTE, the per-message form of
// SO_DONTROUTE.
func sendRules() []*seccomp.Syscall {
	unrouted := func(index uint) specs.LinuxSeccompArg {
		return masked(index, unix.MSG_DONTROUTE, 0)
	}
	return []*seccomp.Syscall{
		allow([]string{"sendto", "send", "sendmmsg"}, unrouted(3)),
		allow([]string{"sendmsg"}, unrouted(2)),
	}
}

func allow(names []string, args ...specs.LinuxSeccompArg) *seccomp.Syscall {
	return &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: names, Action: specs.ActAllow, Args: args}}
}

// equal matches an int argument. The kernel drops the upper half of the register,
// so the comparison must, too: an unmasked one is passed by a set bit there.
func equal(index uint, value uint32) specs.LinuxSeccompArg {
	return masked(index, 0xffffffff, value)
}

func masked(index uint, mask, value uint32) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: index, Value: uint64(mask), ValueTwo: uint64(value), Op: specs.OpMaskedEqual}
}

// blocks are comparisons that together match an int argument from lo up to, not
// including, hi: a filter may compare an argument once a rule, so a range is cut
// into aligned powers of two, as an address range is into prefixes.
func blocks(index uint, lo, hi uint32) []specs.LinuxSeccompArg {
	var out []specs.LinuxSeccompArg
	for lo < hi {
		size := uint32(1) << (bits.Len32(hi-lo) - 1)
		if lo != 0 {
			size = min(size, lo&-lo)
		}
		out = append(out, masked(index, ^(size-1), lo))
		lo += size
	}
	return out
}
