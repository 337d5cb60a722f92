package docker

import (
	"encoding/json"
	"fmt"
	"math"
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
var filtered = []string{"socket", "socketpair", "setsockopt", "sendto", "send", "sendmsg", "sendmmsg", "prlimit64", "setrlimit"}

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
	p.Syscalls = slices.Concat(rules, socketRules(), optionRules(), sendRules(), limitRules())
	b, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("docker: seccomp profile: %w", err)
	}
	return b, nil
}

// socketRules allow the address families that programs need, each with its usual
// types: local sockets, IPv4 and IPv6 with TCP and UDP, and routing netlink (glibc and
// Go list interfaces by it). Not AF_PACKET and raw sockets (frames past the cell's
// filter), SCTP and DCCP (modules that the kernel loads for who asks), AF_VSOCK
// (the hypervisor, which no network namespace bounds), AF_ALG, and the rest, each
// with its own faults in the kernel. ICMP is not among the protocols: nothing in a
// cell answers it.
//
// A pair makes two sockets of its family before it learns that the family knows
// no pairs, so it is a way to all that socket refuses.
func socketRules() []*seccomp.Syscall {
	var rules []*seccomp.Syscall
	for _, kind := range []uint32{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} { // the last for Chromium and sudo
		rules = append(rules, allow([]string{"socket", "socketpair"}, equal(0, unix.AF_UNIX), ofType(kind)))
	}
	for _, kind := range []uint32{unix.SOCK_RAW, unix.SOCK_DGRAM} { // which are the same to netlink
		rules = append(rules, allow([]string{"socket"}, equal(0, unix.AF_NETLINK), ofType(kind), equal(2, unix.NETLINK_ROUTE)))
	}
	for _, family := range []uint32{unix.AF_INET, unix.AF_INET6} {
		for _, of := range []struct{ kind, protocol uint32 }{{unix.SOCK_STREAM, unix.IPPROTO_TCP}, {unix.SOCK_DGRAM, unix.IPPROTO_UDP}} {
			for _, protocol := range []uint32{unix.IPPROTO_IP, of.protocol} { // the first is the type's own
				rules = append(rules, allow([]string{"socket"}, equal(0, family), ofType(of.kind), equal(2, protocol)))
			}
		}
	}
	return rules
}

// ofType matches the type of a socket, beside which the argument has two flags.
func ofType(kind uint32) specs.LinuxSeccompArg {
	return masked(1, ^uint32(unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC), kind)
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

// limitRules allow a process to set its own limits, and to look at those of others.
// The kernel lets any process of the same user set them, PID 1's among them, which
// could be ended so (RLIMIT_CPU) or kept from opening a file. A call that names the
// caller by its number is refused with the rest: a filter does not know that number.
//
// The limit of core dumps is 1 (see confined) and stays so: at 0 the kernel still
// hands the memory of a process that dies to the host's handler, a program of
// root's, if core_pattern names one; only 1 keeps it from that (core(5); fs/coredump.c).
// Who sets it to 0, as gpg and sudo insist on, is told that it is done: there is no
// core dump, indeed.
//
// What else one process may do to another of its user stays allowed: signals, which
// PID 1 does not feel, and a lower priority (setpriority, sched_setattr, ioprio_set),
// which makes PID 1 slow, as any busy sandbox can. Libraries set it for their threads
// by number. A run whose PID 1 does not answer is ended by the executor's clock.
func limitRules() []*seccomp.Syscall {
	const (
		limits    = 16 // the kernel's are numbered below this
		newLimit  = 2  // a pointer, as is the argument behind it
		oldLimit  = 3
		wholeWord = math.MaxUint64
	)
	none := func(index uint) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Index: index, Value: wholeWord, Op: specs.OpMaskedEqual}
	}
	rules := []*seccomp.Syscall{
		allow([]string{"prlimit64"}, none(newLimit)),
		pretend("prlimit64", equal(0, 0), equal(1, unix.RLIMIT_CORE), specs.LinuxSeccompArg{Index: newLimit, Op: specs.OpNotEqual}, none(oldLimit)),
		pretend("setrlimit", equal(0, unix.RLIMIT_CORE)),
	}
	for _, but := range [][2]uint32{{0, unix.RLIMIT_CORE}, {unix.RLIMIT_CORE + 1, limits}} {
		for _, resource := range blocks(1, but[0], but[1]) {
			rules = append(rules, allow([]string{"prlimit64"}, equal(0, 0), resource))
			resource.Index = 0
			rules = append(rules, allow([]string{"setrlimit"}, resource))
		}
	}
	return rules
}

// pretend has a call succeed without being made.
func pretend(name string, args ...specs.LinuxSeccompArg) *seccomp.Syscall {
	return &seccomp.Syscall{LinuxSyscall: specs.LinuxSyscall{Names: []string{name}, Action: specs.ActErrno, ErrnoRet: new(uint), Args: args}}
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
