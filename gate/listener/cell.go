// Package listener opens the sockets of the gate: those of a cell, all or none and for its
// interface alone, that of the metrics, and the control socket, which takes the place of
// one that a dead gate has left and of nothing else.
package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"sallyport/sniproxy/socket"
)

// A Cell is where one cell is served: UDP and TCP are those of its DNS server.
type Cell struct {
	UDP            *net.UDPConn
	TCP, TLS, HTTP net.Listener
}

// Ports are those of a cell on the gate's address in it.
type Ports struct{ DNS, TLS, HTTP uint16 }

// Close closes all of them.
func (c *Cell) Close() {
	c.UDP.Close()
	c.TCP.Close()
	c.TLS.Close()
	c.HTTP.Close()
}

// OpenCell opens all sockets of a cell on the gate's address in it, or none. log is told
// where one cannot be bound to the interface of the address.
func OpenCell(addr netip.Addr, ports Ports, log *slog.Logger) (*Cell, error) {
	device, err := deviceOf(addr)
	if err != nil {
		return nil, err
	}
	// The kernel takes packets for any of its addresses on any interface. Bound
	// to the cell's, the sockets are closed for every other cell.
	// Go would set keep-alive on what they accept, with four calls for each.
	config := net.ListenConfig{KeepAlive: -1, Control: func(network, address string, c syscall.RawConn) error {
		err := bindToDevice(c, device)
		if errors.Is(err, unix.EPERM) {
			// Kernels before 5.7 want a capability for it that the gate does not have.
			log.Warn("cannot bind a socket to its interface", "address", address, "device", device, "error", err)
			err = nil
		}
		if network == "tcp4" { // before a client can be there
			err = errors.Join(err, socket.ClientOptions(c))
		}
		return err
	}}
	var open []interface{ Close() error }
	undo := func(err error) (*Cell, error) {
		for _, c := range open {
			c.Close()
		}
		return nil, err
	}
	tcp := make([]net.Listener, 3)
	for i, port := range []uint16{ports.DNS, ports.TLS, ports.HTTP} {
		ln, err := config.Listen(context.Background(), "tcp4", netip.AddrPortFrom(addr, port).String())
		if err != nil {
			return undo(err)
		}
		tcp[i], open = ln, append(open, ln)
	}
	pc, err := config.ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(addr, ports.DNS).String())
	if err != nil {
		return undo(err)
	}
	return &Cell{UDP: pc.(*net.UDPConn), TCP: tcp[0], TLS: tcp[1], HTTP: tcp[2]}, nil
}

// deviceOf returns the name of the interface that has addr.
func deviceOf(addr netip.Addr) (string, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("listing interfaces: %w", err)
	}
	for _, i := range interfaces {
		addrs, err := i.Addrs()
		if err != nil {
			continue // it has gone away since
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			// All of 127.0.0.0/8 is local, though only one address is set.
			if n.IP.Equal(addr.AsSlice()) || i.Flags&net.FlagLoopback != 0 && n.Contains(addr.AsSlice()) {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("%v is not an address of the gate", addr)
}

func bindToDevice(c syscall.RawConn, device string) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); e != nil {
		return e
	}
	return err
}

// Metrics listens on one address, and only on the interface that has it:
// the kernel would take packets for it from the cells as well.
func Metrics(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	device, err := deviceOf(addr.Addr())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		if err := bindToDevice(c, device); err != nil && !errors.Is(err, unix.EPERM) { // as for a cell
			return err
		}
		return nil
	}}
	ln, err := config.Listen(ctx, "tcp", addr.String())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return ln, nil
}
