package gate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"sallyport/sniproxy/socket"

	"golang.org/x/sys/unix"
)

// sockets are where one cell is served.
type sockets struct {
	udp            *net.UDPConn
	tcp, tls, http net.Listener
}

func (s *sockets) close() {
	s.udp.Close()
	s.tcp.Close()
	s.tls.Close()
	s.http.Close()
}

// listen opens all sockets of a cell on the gate's address in it, or none.
func (s *server) listen(addr netip.Addr) (*sockets, error) {
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
			s.Log.Warn("cannot bind a socket to its interface", "address", address, "device", device, "error", err)
			err = nil
		}
		if network == "tcp4" { // before a client can be there
			err = errors.Join(err, socket.ClientOptions(c))
		}
		return err
	}}
	var open []interface{ Close() error }
	undo := func(err error) (*sockets, error) {
		for _, c := range open {
			c.Close()
		}
		return nil, err
	}
	tcp := make([]net.Listener, 3)
	for i, port := range []uint16{s.ports.dns, s.ports.tls, s.ports.http} {
		ln, err := config.Listen(context.Background(), "tcp4", netip.AddrPortFrom(addr, port).String())
		if err != nil {
			return undo(err)
		}
		tcp[i], open = ln, append(open, ln)
	}
	pc, err := config.ListenPacket(context.Background(), "udp4", netip.AddrPortFrom(addr, s.ports.dns).String())
	if err != nil {
		return undo(err)
	}
	return &sockets{udp: pc.(*net.UDPConn), tcp: tcp[0], tls: tcp[1], http: tcp[2]}, nil
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
