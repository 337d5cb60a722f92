package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func rawSocket() error {
	return opens(unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP))
}

func packetSocket() error {
	return opens(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0))
}

// socketFamilies asks for a socket of every family that the kernel could know.
func socketFamilies() (string, error) {
	usual := []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK, unix.AF_PACKET}
	var made []string
	for family := 1; family < unix.AF_MAX; family++ {
		if slices.Contains(usual, family) {
			continue
		}
		for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM, unix.SOCK_SEQPACKET, unix.SOCK_RAW} {
			if opens(unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)) == nil {
				made = append(made, strconv.Itoa(family))
				break
			}
		}
	}
	return madeAll("sockets of the families", made)
}

// socketPairs asks for a pair of every family but unix. The kernel makes both sockets
// before it finds that a family, such as IPv4, knows no pairs.
func socketPairs() (string, error) {
	var made []string
	for family := unix.AF_UNIX + 1; family < unix.AF_MAX; family++ {
		pair, err := unix.Socketpair(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			unix.Close(pair[0])
			unix.Close(pair[1])
		}
		if err == nil || errors.Is(err, unix.EOPNOTSUPP) {
			made = append(made, strconv.Itoa(family))
		}
	}
	return madeAll("pairs of the families", made)
}

// socketTypes asks for sockets of the usual families that are neither TCP nor UDP nor, of
// netlink, the routes.
func socketTypes() (string, error) {
	var made []string
	try := func(family, kind, protocol int) {
		if opens(unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)) == nil {
			made = append(made, fmt.Sprintf("%d/%d/%d", family, kind, protocol))
		}
	}
	others := []int{unix.IPPROTO_ICMP, unix.IPPROTO_IGMP, unix.IPPROTO_DCCP, unix.IPPROTO_ICMPV6, unix.IPPROTO_SCTP,
		unix.IPPROTO_UDPLITE, unix.IPPROTO_RAW, unix.IPPROTO_MPTCP}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		for _, protocol := range others {
			try(family, unix.SOCK_STREAM, protocol)
			try(family, unix.SOCK_DGRAM, protocol)
		}
		for _, kind := range []int{unix.SOCK_RAW, unix.SOCK_RDM, unix.SOCK_SEQPACKET, unix.SOCK_DCCP, unix.SOCK_PACKET} {
			for _, protocol := range append(others, unix.IPPROTO_IP, unix.IPPROTO_TCP, unix.IPPROTO_UDP) {
				try(family, kind, protocol)
			}
		}
	}
	for protocol := unix.NETLINK_ROUTE + 1; protocol < 32; protocol++ { // the kernel's MAX_LINKS
		try(unix.AF_NETLINK, unix.SOCK_RAW, protocol)
	}
	return madeAll("sockets of family, type and protocol", made)
}

// madeAll is what became of asking for many.
func madeAll(what string, made []string) (string, error) {
	if len(made) == 0 {
		return "", errors.New("none can be made")
	}
	return "made " + what + " " + strings.Join(made, " "), nil
}

// nftables asks for a list of the tables, which needs the privilege to change
// them (nfnetlink, NFT_MSG_GETTABLE).
func nftables() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const size = unix.SizeofNlMsghdr + 4
	message := make([]byte, size)
	*(*unix.NlMsghdr)(unsafe.Pointer(&message[0])) = unix.NlMsghdr{
		Len:   size,
		Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE,
		Flags: unix.NLM_F_REQUEST | unix.NLM_F_DUMP | unix.NLM_F_ACK,
	}
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	answer := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	header := (*unix.NlMsghdr)(unsafe.Pointer(&answer[0]))
	if n >= unix.SizeofNlMsghdr+4 && header.Type == unix.NLMSG_ERROR {
		if code := *(*int32)(unsafe.Pointer(&answer[unix.SizeofNlMsghdr])); code != 0 {
			return syscall.Errno(-code)
		}
	}
	return nil
}

// tryICMP sends an echo request by a ping socket, which needs no privilege where
// net.ipv4.ping_group_range allows it.
func tryICMP(ctx context.Context, p Probe) finding {
	to, err := netip.ParseAddr(p.Address)
	if err != nil || !to.Is4() {
		return refused(fmt.Errorf("address %q is not an IPv4 address", p.Address))
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err != nil {
		return refused(fmt.Errorf("make a ping socket: %w", err))
	}
	f := os.NewFile(uintptr(fd), "ping")
	c, err := net.FilePacketConn(f)
	f.Close()
	if err != nil {
		return refused(err)
	}
	defer c.Close()
	return ping(ctx, c, to, p.Payload)
}

func ping(ctx context.Context, c net.PacketConn, to netip.Addr, payload string) finding {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(defaultTimeout)
	}
	if err := c.SetDeadline(deadline); err != nil {
		return refused(err)
	}
	request := append([]byte{8, 0, 0, 0, 0, 0, 0, 1}, payload...) // the kernel fills in checksum and identifier
	if _, err := c.WriteTo(request, &net.UDPAddr{IP: to.AsSlice()}); err != nil {
		return refused(err)
	}
	answer := make([]byte, 256)
	n, from, err := c.ReadFrom(answer)
	if err != nil || n == 0 || answer[0] != 0 {
		return finding{detail: fmt.Sprintf("sent, no answer: %v", err)}
	}
	return finding{reached: true, detail: from.String() + " answered"}
}
