// Command tool is the agent of the tests: a static program with the few things
// that they ask of one.
//
//	tool env | cat FILE... | status | fds | sleep
//	tool memory | processes | fill DIR | buffers
//	tool leave [hunt | sleep] | hunt | keep
//	tool serve | dial NETWORK ADDRESS | calls
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch args[0] {
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "cat":
		for _, name := range args[1:] {
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			os.Stdout.Write(b)
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "memory":
		for {
			b := make([]byte, 16<<20)
			for i := range b {
				b[i] = byte(i)
			}
			held = append(held, b)
		}
	case "processes":
		return processes()
	case "fill":
		return fill(args[1])
	case "buffers":
		return buffers()
	case "serve":
		return serve()
	case "dial":
		return dial(args[1], args[2])
	case "calls":
		return calls()
	case "leave":
		if err := leave(); err != nil || len(args) == 1 {
			return err
		}
		return run(args[1:])
	case "hunt":
		return hunt()
	case "keep":
		return keep()
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
	return nil
}

var held [][]byte

// processes starts as many as it can and says how many they were.
func processes() error {
	for n := 0; ; n++ {
		if err := exec.Command("/proc/self/exe", "sleep").Start(); err != nil || n > 5000 {
			fmt.Println(n)
			return nil
		}
	}
}

// fill writes until nothing more fits and says how many bytes did.
func fill(dir string) error {
	f, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(zeroes{}, 1<<30))
	fmt.Println(n, err)
	return nil
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { return len(p), nil }

// serve answers on the gate's ports, tcp and udp, with what it was sent.
func serve() error {
	packets, err := net.ListenPacket("udp4", ":53")
	if err != nil {
		return err
	}
	for _, port := range []string{":53", ":80", ":443", ":9"} {
		l, err := net.Listen("tcp4", port)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					c.SetDeadline(time.Now().Add(5 * time.Second))
					line, _ := bufio.NewReader(c).ReadString('\n')
					io.WriteString(c, line)
				}()
			}
		}()
	}
	fmt.Println("serving")
	b := make([]byte, 512)
	for {
		n, from, err := packets.ReadFrom(b)
		if err != nil {
			return err
		}
		packets.WriteTo(b[:n], from)
	}
}

// buffers fills the buffers of 64 connections to itself with up to 256 MiB, prints how
// many MiB they took, and keeps them.
func buffers() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	var ends []net.Conn
	piece, total := make([]byte, 64<<10), 0
	for total < 256<<20 && len(ends) < 2*64 {
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			return err
		}
		other, err := l.Accept() // never reads
		if err != nil {
			return err
		}
		ends = append(ends, c, other)
		for { // until it takes nothing for a moment
			c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
			n, err := c.Write(piece)
			if total += n; err != nil {
				break
			}
		}
	}
	fmt.Println(total >> 20)
	time.Sleep(time.Hour)
	return nil
}

// dial says a word to an address and prints what comes back, or the error.
func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(c, "word\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Print(line)
	return nil
}

// What the kernel reads and writes in calls has a fixed place.
var (
	two       [2]int32
	was, zero unix.Rlimit
)

// calls tries the system calls that the seccomp profile is about and prints the
// error of each as JSON, "" for success. It does by number what a program without
// any library could.
func calls() error {
	results := make(map[string]string)
	try := func(name string, number, a, b, c, d uintptr) uintptr {
		r, _, errno := syscall.Syscall6(number, a, b, c, d, 0, 0)
		results[name] = ""
		if errno != 0 {
			results[name] = unix.ErrnoName(errno)
		}
		return r
	}
	const upper = 1 << 32 // a bit that the kernel ignores in an int
	socket := func(name string, family, kind, protocol uintptr) uintptr {
		return try(name, unix.SYS_SOCKET, family, kind, protocol, 0)
	}
	udp := socket("udp", unix.AF_INET, unix.SOCK_DGRAM, 0)
	socket("tcp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP)
	socket("udp6", unix.AF_INET6, unix.SOCK_DGRAM, 0)
	socket("unix", unix.AF_UNIX, unix.SOCK_STREAM, 0)
	socket("netlink route", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	socket("netlink netfilter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	socket("packet", unix.AF_PACKET, unix.SOCK_RAW, 0)
	socket("packet, upper bit", unix.AF_PACKET|upper, unix.SOCK_RAW, 0)
	socket("vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	socket("vsock, upper bit", unix.AF_VSOCK|upper, unix.SOCK_STREAM, 0)
	socket("alg", unix.AF_ALG, unix.SOCK_SEQPACKET, 0)
	socket("raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	socket("ping", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP)
	socket("sctp", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP)
	socket("sctp by its type", unix.AF_INET, unix.SOCK_SEQPACKET, 0)
	socket("raw udp", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_UDP)
	socket("tcp, upper bit in type", unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|upper, 0)
	socket("udp of another type", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_UDP)
	socket("unix seqpacket", unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	pair := func(name string, family, kind uintptr) {
		try(name, unix.SYS_SOCKETPAIR, family, kind, 0, uintptr(unsafe.Pointer(&two)))
	}
	pair("unix pair", unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
	pair("internet pair", unix.AF_INET, unix.SOCK_STREAM)
	pair("tipc pair", unix.AF_TIPC, unix.SOCK_SEQPACKET)
	pair("tipc pair, upper bit", unix.AF_TIPC|upper, unix.SOCK_SEQPACKET)

	one, device := pointer([]byte{1, 0, 0, 0}), pointer([]byte("eth0\x00"))
	option := func(name string, level, option, value uintptr) {
		// Every option takes its four bytes, or none, from the same place.
		r, _, errno := syscall.Syscall6(unix.SYS_SETSOCKOPT, udp, level, option, value, 4, 0)
		results[name] = ""
		if r != 0 {
			results[name] = unix.ErrnoName(errno)
		}
	}
	option("keepalive", unix.SOL_SOCKET, unix.SO_KEEPALIVE, one)
	option("reuseport", unix.SOL_SOCKET, unix.SO_REUSEPORT, one)
	option("zerocopy", unix.SOL_SOCKET, unix.SO_ZEROCOPY, one)
	option("ip tos", unix.IPPROTO_IP, unix.IP_TOS, one)
	option("dontroute", unix.SOL_SOCKET, unix.SO_DONTROUTE, one)
	option("dontroute, upper bit", unix.SOL_SOCKET, unix.SO_DONTROUTE|upper, one)
	option("dontroute, upper bit in level", unix.SOL_SOCKET|upper, unix.SO_DONTROUTE, one)
	option("bindtodevice", unix.SOL_SOCKET, unix.SO_BINDTODEVICE, device)
	option("bindtoifindex", unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, one)

	// To port 9 of the loopback device: nobody listens, and a datagram needs nobody.
	if err := unix.Connect(int(udp), &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	try("send", unix.SYS_SENDTO, udp, one, 4, 0)
	try("clear the refusal", unix.SYS_SENDTO, udp, one, 4, 0)
	try("send dontroute", unix.SYS_SENDTO, udp, one, 4, unix.MSG_DONTROUTE)
	try("send dontroute, upper bit", unix.SYS_SENDTO, udp, one, 4, unix.MSG_DONTROUTE|upper)
	try("sendmsg dontroute", unix.SYS_SENDMSG, udp, 0, unix.MSG_DONTROUTE, 0)
	try("sendmmsg dontroute", unix.SYS_SENDMMSG, udp, 0, 1, unix.MSG_DONTROUTE)

	limits := func(name string, pid uintptr, resource int, set, was *unix.Rlimit) {
		try(name, unix.SYS_PRLIMIT64, pid, uintptr(resource), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(was)))
	}
	limits("look at a limit of pid 1", 1, unix.RLIMIT_CPU, nil, &was)
	limits("set a limit of pid 1", 1, unix.RLIMIT_CPU, &was, nil)
	limits("set a limit of its own", 0, unix.RLIMIT_CPU, &was, nil)
	limits("set a limit of its own by number", uintptr(os.Getpid()), unix.RLIMIT_CPU, &was, nil)
	limits("leave no core", 0, unix.RLIMIT_CORE, &zero, nil)
	try("leave no core, setrlimit", unix.SYS_SETRLIMIT, unix.RLIMIT_CORE, uintptr(unsafe.Pointer(&zero)), 0, 0)
	limits("look at the limit of cores", 0, unix.RLIMIT_CORE, nil, &was)
	if was.Cur != 1 || was.Max != 1 {
		results["look at the limit of cores"] = fmt.Sprintf("it is %d, at most %d", was.Cur, was.Max)
	}

	try("io_uring", unix.SYS_IO_URING_SETUP, 1, 0, 0, 0)
	try("userfaultfd", unix.SYS_USERFAULTFD, 1, 0, 0, 0)
	try("keyctl", unix.SYS_KEYCTL, 0, 0, 0, 0)
	try("bpf", unix.SYS_BPF, 0, 0, 0, 0)
	try("perf_event_open", unix.SYS_PERF_EVENT_OPEN, 0, 0, 0, 0)
	try("unshare user", unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0, 0)
	try("mount", unix.SYS_MOUNT, 0, 0, 0, 0)
	try("name_to_handle_at", unix.SYS_NAME_TO_HANDLE_AT, 0, 0, 0, 0)
	try("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0, 0)
	try("clone3", unix.SYS_CLONE3, 0, 0, 0, 0)
	try("ptrace", unix.SYS_PTRACE, unix.PTRACE_TRACEME, 0, 0, 0)
	return json.NewEncoder(os.Stdout).Encode(results)
}
