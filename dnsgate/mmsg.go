package dnsgate

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// maxQuery is how much of a message is read. An honest query has less than 600
	// bytes; what is beyond is cut and so, like any garbage behind it, ignored.
	maxQuery = 2048
	// minBatch and maxBatch bound the messages that are read, and the replies that
	// are sent, in one call of the kernel; see socket.most. More save little.
	minBatch, maxBatch = 8, 32
)

// A batch has the buffers for as many messages and replies as are handled
// together, and what the kernel wants to know of them. Go's heap does not move,
// so that they may point at each other.
//
// The calls are made here and not by golang.org/x/net, which makes a net.Addr of
// each source. They go past the runtime's notes of when a call begins and ends,
// since none of them waits.
type batch struct {
	in   [maxBatch][maxQuery]byte
	from [maxBatch]unix.RawSockaddrInet6 // of either family
	into [maxBatch]unix.Iovec
	read [maxBatch]mmsghdr

	out     [maxBatch][2 + maxReply]byte
	replies [maxBatch]udpReply
	parts   [maxBatch]unix.Iovec
	cuts    [maxBatch]cut
	written [maxBatch]mmsghdr
}

// mmsghdr is what recvmmsg(2) and sendmmsg(2) take.
type mmsghdr struct {
	unix.Msghdr
	len uint32
}

// A udpReply is what is sent to the sender of message to.
type udpReply struct {
	to    int
	bytes []byte
}

// A cut is a control message: what is sent is several datagrams, each of this
// size but the last, which may be shorter; udp(7), UDP_SEGMENT.
type cut struct {
	unix.Cmsghdr
	size uint16
	_    [6]byte // CMSG_SPACE
}

func newBatch() *batch {
	b := new(batch)
	for i := range maxBatch {
		b.into[i].Base = &b.in[i][0]
		b.into[i].SetLen(maxQuery)
		m := &b.read[i]
		m.Name = (*byte)(unsafe.Pointer(&b.from[i]))
		m.Iov = &b.into[i]
		m.SetIovlen(1)
		c := &b.cuts[i]
		c.Level, c.Type = unix.SOL_UDP, unix.UDP_SEGMENT
		c.SetLen(unix.CmsgLen(2))
	}
	return b
}

// receive reads the messages that have arrived, as many as most, without waiting
// for one.
func (b *batch) receive(fd, most int) (n int, err error) {
	for i := range b.read[:most] {
		b.read[i].Namelen = uint32(unsafe.Sizeof(b.from[i]))
	}
	r, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd),
		uintptr(unsafe.Pointer(&b.read)), uintptr(most), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// message is what was received in place i.
func (b *batch) message(i int) []byte { return b.in[i][:b.read[i].len] }

// client is who sent message i; the zero value, which is in no prefix, where it
// has no address.
func (b *batch) client(i int) netip.AddrPort {
	from := &b.from[i]
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&from.Port))[:])
	switch from.Family {
	case unix.AF_INET:
		four := (*unix.RawSockaddrInet4)(unsafe.Pointer(from))
		return netip.AddrPortFrom(netip.AddrFrom4(four.Addr), port)
	case unix.AF_INET6:
		return netip.AddrPortFrom(netip.AddrFrom16(from.Addr).Unmap(), port)
	}
	return netip.AddrPort{}
}

// send sends the first n replies, those to one client together if the kernel can
// cut them apart, and reports whether it can. A reply that cannot be sent is a
// lost packet: the client asks again.
func (b *batch) send(fd, n int, together bool) bool {
	if together {
		b.sort(n)
	}
	for at := 0; at < n; {
		messages := b.lay(at, n, together)
		r, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd),
			uintptr(unsafe.Pointer(&b.written)), uintptr(messages), unix.MSG_DONTWAIT, 0, 0)
		first := int(b.written[0].Iovlen)
		switch {
		case errno == unix.EINTR:
		case errno == 0:
			for i := range int(r) {
				at += int(b.written[i].Iovlen)
			}
		case first > 1 && errno != unix.EAGAIN && errno != unix.ENOBUFS:
			together = false // a device without checksums, a path with small packets
		default:
			at += first // it failed, or r would count those before it
		}
	}
	return together
}

// sort orders the first n replies by client, the longer ones first. There are
// few.
func (b *batch) sort(n int) {
	for i := 1; i < n; i++ {
		for k := i; k > 0; k-- {
			x, y := &b.replies[k-1], &b.replies[k]
			if p, q := b.from[x.to].Port, b.from[y.to].Port; p < q || p == q && len(x.bytes) >= len(y.bytes) {
				break
			}
			*x, *y = *y, *x
		}
	}
}

// lay lays out the replies from number at on for the kernel and returns how many
// messages they are.
func (b *batch) lay(at, n int, together bool) (messages int) {
	for ; at < n; messages++ {
		first, start := &b.replies[at], at
		size := len(first.bytes)
		for more := true; more; at++ {
			bytes := b.replies[at].bytes
			b.parts[at].Base = &bytes[0]
			b.parts[at].SetLen(len(bytes))
			// Only the last may be shorter.
			more = together && len(bytes) == size && at+1 < n && len(b.replies[at+1].bytes) <= size &&
				b.from[b.replies[at+1].to] == b.from[first.to]
		}
		m := &b.written[messages]
		m.Name, m.Namelen = b.read[first.to].Name, b.read[first.to].Namelen
		m.Iov, m.Control = &b.parts[start], nil
		m.SetIovlen(at - start)
		m.SetControllen(0)
		if at-start > 1 {
			c := &b.cuts[messages]
			c.size = uint16(size)
			m.Control = (*byte)(unsafe.Pointer(c))
			m.SetControllen(int(unsafe.Sizeof(*c)))
		}
	}
	return messages
}
