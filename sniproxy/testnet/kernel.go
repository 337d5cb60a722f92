package testnet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/sniproxy/socket"
)

// SocketMemory is what the kernel holds for the gate's own ends: the sockets whose own
// address is one of own, or whose other end is one of far.
func SocketMemory(t *testing.T, own, far []string) (sum int64) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	among := func(name func(int) (netip.AddrPort, bool), fd int, want []string) bool {
		at, ok := name(fd)
		for _, s := range want {
			if ok && at == netip.MustParseAddrPort(s) {
				return true
			}
		}
		return false
	}
	for _, e := range all {
		fd, _ := strconv.Atoi(e.Name())
		if among(socket.Local, fd, own) || among(socket.Peer, fd, far) {
			n, _ := socket.Held(fd) // what is closed meanwhile holds nothing
			sum += n
		}
	}
	return sum
}

// Flood writes until the other end is gone.
func Flood(wg *sync.WaitGroup, c net.Conn) {
	wg.Go(func() {
		for b := make([]byte, 256<<10); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	})
}

// Descriptors counts those that this process has open.
func Descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Memory is what the process holds for heap and stacks, in bytes.
func Memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// Control calls f with the descriptor of c.
func Control(t *testing.T, c *net.TCPConn, f func(fd int) error) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
}

// Arrive waits until the other end's kernel has all that c has sent, and its end.
func Arrive(t *testing.T, c *net.TCPConn) {
	t.Helper()
	Eventually(t, "all to arrive", func() (all bool) {
		Control(t, c, func(fd int) error {
			n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
			all = n == 0
			return err
		})
		return all
	})
}

// Fill writes to c until it takes no more.
func Fill(t *testing.T, c *net.TCPConn) {
	t.Helper()
	piece := make([]byte, 1<<20)
	for range 1000 {
		_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := c.Write(piece); errors.Is(err, os.ErrDeadlineExceeded) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("it takes everything")
}

// Knock connects and reads to the end; the connection may be reset at any time.
func Knock(addr string) ([]byte, error) {
	conn, err := net.DialTimeout("tcp", addr, Patience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	return io.ReadAll(conn)
}

// WantCut wants that the peer has cut the connection, not merely stayed silent.
func WantCut(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) || n > 0 {
		t.Errorf("%d bytes, %v; want a cut", n, err)
	}
}

// Full makes a listener on loopback that takes no more connections: to dial it hangs. That
// many wait already, of which it has room for one.
func Full(t *testing.T, n int) (fd int, at netip.AddrPort) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		t.Cleanup(func() { unix.Close(fd) })
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = unix.Listen(fd, 0)
	}
	at, ok := socket.Local(fd)
	for range n {
		if err != nil || !ok {
			t.Fatal(at, err)
		}
		var waiting int
		waiting, err = socket.Connect(at)
		t.Cleanup(func() { socket.Close(waiting) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd, at
}
