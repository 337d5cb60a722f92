package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxConns bounds the connections that a canary listens to at a time; further
	// ones count as hits and are closed.
	maxConns = 256
	// hearTime is how long a connection may take to say something.
	hearTime = 5 * time.Second
)

// Canary listens by TCP and UDP on one port of every address, IPv4 and, where
// there is any, IPv6, repeats what it hears, and writes CanaryLines: a hello, and a
// hit for everything that reached it. Meanwhile it tries each Request that it reads
// from stdin, by which it can be made to hear itself, and ends when stdin does.
func Canary(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &canary{out: json.NewEncoder(stdout), fail: cancel, turn: make(chan struct{}, maxConns)}
	port, err := c.listen(ctx)
	if err != nil {
		cancel(nil)
		return err
	}
	defer c.close()
	defer cancel(nil) // before close, which waits for connections
	if err := c.say(CanaryLine{Hello: &CanaryHello{Port: port, Addresses: ownAddresses(), Tables: tables()}}); err != nil {
		return err
	}
	for _, p := range c.packets {
		c.all.Go(func() { c.servePackets(p) })
	}
	for _, l := range c.listeners {
		c.all.Go(func() { c.serveConns(ctx, l) })
	}
	obeyed := make(chan struct{})
	go func() {
		defer close(obeyed)
		c.obey(ctx, stdin)
	}()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, errEnd) {
		return err
	}
	<-obeyed
	return nil
}

var errEnd = errors.New("standard input ended")

type canary struct {
	packets   []net.PacketConn
	listeners []net.Listener
	all       sync.WaitGroup
	turn      chan struct{}
	fail      context.CancelCauseFunc

	mu  sync.Mutex // guards out
	out *json.Encoder
}

func (c *canary) say(line CanaryLine) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.out.Encode(line); err != nil {
		return fmt.Errorf("write a line: %w", err)
	}
	return nil
}

// obey tries each request, without waiting for the one before. When there is none any
// more it ends the canary.
func (c *canary) obey(ctx context.Context, stdin io.Reader) {
	var tries sync.WaitGroup
	defer tries.Wait()
	for requests := json.NewDecoder(stdin); ; {
		request, err := parse(requests)
		if errors.Is(err, io.EOF) {
			err = errEnd
		}
		if err != nil {
			c.fail(err)
			return
		}
		tries.Go(func() {
			if err := request.try(ctx, func(r Result) error { return c.say(CanaryLine{Result: &r}) }); err != nil {
				c.fail(err)
			}
		})
	}
}

// listen opens the sockets: the kernel chooses the port of the first, and if
// another one is taken by someone else, all are tried anew.
func (c *canary) listen(ctx context.Context) (port int, err error) {
	for range 10 {
		if port, err = c.listenOnce(ctx); err == nil {
			return port, nil
		}
		c.close()
		c.packets, c.listeners = nil, nil
	}
	return 0, fmt.Errorf("listen: %w", err)
}

func (c *canary) listenOnce(ctx context.Context) (int, error) {
	config := net.ListenConfig{Control: func(network, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			if network == "udp6" || network == "tcp6" {
				failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
			}
		})
		return errors.Join(err, failed)
	}}
	first, err := config.ListenPacket(ctx, "udp4", "0.0.0.0:0")
	if err != nil {
		return 0, err
	}
	c.packets = append(c.packets, first)
	port := first.LocalAddr().(*net.UDPAddr).Port
	l, err := config.Listen(ctx, "tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		return 0, err
	}
	c.listeners = append(c.listeners, l)
	p6, err := config.ListenPacket(ctx, "udp6", fmt.Sprintf("[::]:%d", port))
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		return port, nil // no IPv6 here
	}
	if err != nil {
		return 0, err
	}
	c.packets = append(c.packets, p6)
	l6, err := config.Listen(ctx, "tcp6", fmt.Sprintf("[::]:%d", port))
	if err != nil {
		return 0, err
	}
	c.listeners = append(c.listeners, l6)
	return port, nil
}

// close closes the sockets and waits for whoever serves them.
func (c *canary) close() {
	for _, p := range c.packets {
		p.Close()
	}
	for _, l := range c.listeners {
		l.Close()
	}
	c.all.Wait()
}

func (c *canary) hit(proto string, from net.Addr, payload []byte) {
	peer, _ := netip.ParseAddrPort(from.String())
	hit := &CanaryHit{Proto: proto, From: peer, Payload: string(payload[:min(len(payload), MaxPayload)])}
	if err := c.say(CanaryLine{Hit: hit}); err != nil {
		c.fail(err)
	}
}

func (c *canary) servePackets(p net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		n, from, err := p.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an answer of ours was refused
		}
		c.hit("udp", from, buf[:n])
		p.WriteTo(buf[:n], from) // that it does not arrive is the other side's to notice
	}
}

func (c *canary) serveConns(ctx context.Context, l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, perhaps
			continue
		}
		select {
		case c.turn <- struct{}{}:
			c.all.Go(func() {
				c.serveConn(ctx, conn)
				<-c.turn
			})
		default:
			c.hit("tcp", conn.RemoteAddr(), nil)
			conn.Close()
		}
	}
}

func (c *canary) serveConn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(hearTime))
	buf := make([]byte, 2048)
	n, _ := conn.Read(buf) // whoever says nothing was here, too
	c.hit("tcp", conn.RemoteAddr(), buf[:n])
	conn.Write(buf[:n])
}

// ownAddresses are the addresses of all devices but the loopback's.
func ownAddresses() []netip.Addr {
	found := []netip.Addr{}
	for _, d := range devices() {
		addrs, err := d.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				found = append(found, p.Addr().WithZone(zone(p.Addr(), d)))
			}
		}
	}
	return found
}

func zone(a netip.Addr, d net.Interface) string {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return d.Name
	}
	return ""
}

// tables reads what the kernel tells of its tables.
func tables() Tables {
	number := func(name string, field int) (n int64) {
		text, err := os.ReadFile(name)
		if fields := strings.Fields(string(text)); err == nil && len(fields) > field {
			n, _ = strconv.ParseInt(fields[field], 10, 64) // 0 is unknown
		}
		return n
	}
	return Tables{
		TCPBytes:    number("/proc/sys/net/ipv4/tcp_mem", 1) * int64(os.Getpagesize()),
		Connections: number("/proc/sys/net/netfilter/nf_conntrack_max", 0),
	}
}
