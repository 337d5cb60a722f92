package gate

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// Two cells with two policies: each gets its own, and each receipt holds only
// its own decisions.
//
// probe: D19, L9, N7, X1, R7
// oracle: the receipts of both cells, which hold their own decisions only; the answers
// and tunnels of each beside those of the other
func TestLeasesAreSeparate(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "other"))

	g.wantResolved(t, 1, "www.site.example.")
	g.wantNXDOMAIN(t, 1, "other.example.")
	g.wantResolved(t, 2, "other.example.")
	g.wantNXDOMAIN(t, 2, "www.site.example.")
	if _, err := g.tunnel(t, 1, "www.site.example"); err != nil {
		t.Errorf("control: %v", err)
	}
	if _, err := g.tunnel(t, 2, "www.site.example"); err == nil {
		t.Error("the policy of cell 1 in cell 2")
	}

	// The gate's address in the other cell answers nobody but that cell.
	foreign, err := g.dialCell("udp4", 1, 2, g.daemon.ports.dns)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := foreign.Write([]byte(foreignQuery)); err != nil {
		t.Fatal(err)
	}
	query := foreignQuery
	g.wantOwnOnly(t, g.daemon.ports.dns, append([]byte{0, byte(len(query))}, query...))
	g.wantOwnOnly(t, g.daemon.ports.http, []byte("GET / HTTP/1.1\r\nHost: refused.example\r\n\r\n"))
	g.wantOwnOnly(t, g.daemon.ports.tls, hello(t, "other.example"))

	// Nor does a tunnel lead there, though the allowlist admits the range.
	if _, err := g.tunnel(t, 1, "cells.example"); err == nil {
		t.Error("a tunnel from cell 1 into cell 2")
	}

	one, two := g.release(t, "c1"), g.release(t, "c2")
	if n := count(one.Receipt, account.KindTLS, "cells.example", firewall.ReasonAddress); n != 1 {
		t.Errorf("the tunnel into a cell was not refused for its address: %+v", one.Receipt)
	}
	for kind, want := range map[account.Kind]int64{account.KindDNS: 2, account.KindTLS: 1, account.KindHTTP: 1} {
		if n := count(two.Receipt, kind, "", firewall.ReasonForeignClient); n != want {
			t.Errorf("the receipt of cell 2 counts %d foreign clients by %s, want %d: %+v", n, kind, want, two.Receipt)
		}
	}
	for _, h := range one.Receipt.Hosts {
		if h.Reason == firewall.ReasonForeignClient {
			t.Errorf("cell 1 has a row of cell 2: %+v", h)
		}
	}
	for _, h := range two.Receipt.Hosts {
		if h.Host == "cells.example" {
			t.Errorf("cell 2 has a row of cell 1: %+v", h)
		}
	}
}

// foreignQuery asks for the address of a name that cell 2 alone may look up.
const foreignQuery = "\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x05other\x07example\x00\x00\x01\x00\x01"

// hello is what a TLS client of host says first.
func hello(t *testing.T, host string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: host}).Handshake() // ends with the pipe
		client.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// wantOwnOnly wants that cell 2 answers what is said to the port by a client of its
// own, and not a byte of the same from a client of cell 1.
func (g *testGate) wantOwnOnly(t *testing.T, port uint16, said []byte) {
	t.Helper()
	for from, want := range map[byte]bool{1: false, 2: true} {
		c, err := g.dialCell("tcp4", from, 2, port)
		if err != nil && !want {
			continue // reset before the dial was told that it had connected
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write(said) // fails where the connection is reset already
		if port == g.daemon.ports.tls {
			_ = c.(*net.TCPConn).CloseWrite() // the upstream answers a hello without an end by an alert
		}
		n, err := c.Read(make([]byte, 1))
		if answered := n > 0; answered != want {
			t.Errorf("port %d of cell 2 answers a client of cell %d: %v, want %v (%v)", port, from, answered, want, err)
		}
	}
}

// Releasing a cell cuts its tunnels, and only its own; nobody listens any more.
//
// probe: P5, L11
// oracle: the tunnel's end, which is cut, beside that of the other cell, which echoes;
// the ports; the receipt
func TestReleaseCutsTunnels(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "strict"))
	cut, err := g.tunnel(t, 1, "www.site.example")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := g.tunnel(t, 2, "www.site.example")
	if err != nil {
		t.Fatal(err)
	}
	idle := g.client(t, "tcp4", 1, g.daemon.ports.dns)

	if n := count(g.release(t, "c1").Receipt, account.KindTLS, "www.site.example", firewall.ReasonListed); n != 1 {
		t.Errorf("the tunnel is %d times in the receipt", n)
	}
	if err := echo(cut); err == nil {
		t.Error("a tunnel outlived its lease")
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("a DNS connection outlived its lease")
	}
	if err := echo(kept); err != nil {
		t.Errorf("control: the other cell's tunnel: %v", err)
	}
	for _, port := range []uint16{g.daemon.ports.dns, g.daemon.ports.tls, g.daemon.ports.http} {
		if c, err := g.dialCell("tcp4", 1, 1, port); err == nil {
			c.Close()
			t.Errorf("port %d is still open", port)
		}
	}
}

// The next lease of the same cell and address has its own policy and a receipt
// that starts empty.
//
// probe: L4
// oracle: what the next run of the same address resolves and reaches, three times over;
// its receipt, which begins empty
func TestAddressIsReused(t *testing.T) {
	g := start(t, upstream(t), nil)
	for range 3 {
		g.lease(t, "c1", cellLease(1, "run-1", "strict"))
		g.wantResolved(t, 1, "www.site.example.")
		g.wantNXDOMAIN(t, 1, "other.example.")
		g.release(t, "c1")

		cell := g.lease(t, "c1", cellLease(1, "run-2", "other"))
		if len(cell.Receipt.Hosts) != 0 {
			t.Errorf("inherited %+v", cell.Receipt)
		}
		g.wantNXDOMAIN(t, 1, "www.site.example.")
		g.wantResolved(t, 1, "other.example.")
		if _, err := g.tunnel(t, 1, "www.site.example"); err == nil {
			t.Error("inherited policy")
		}
		g.release(t, "c1")
	}
}

// The sockets of a cell are bound to its interface.
//
// probe: X1
// oracle: the kernel's word about each socket
func TestSocketsAreBoundToTheInterface(t *testing.T) {
	g := start(t, upstream(t), nil)
	s := newServer(t.Context(), g.daemon)
	on, err := s.listen(netip.MustParseAddr("127.77.1.2"))
	if err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]io.Closer{"udp": on.UDP, "tcp": on.TCP, "tls": on.TLS, "http": on.HTTP} {
		if device, err := boundTo(socket.(syscall.Conn)); err != nil || device != "lo" {
			t.Errorf("%s: bound to %q, %v; want lo", name, device, err)
		}
		socket.Close()
	}
}

func boundTo(socket syscall.Conn) (device string, err error) {
	c, err := socket.SyscallConn()
	if err != nil {
		return "", err
	}
	e := c.Control(func(fd uintptr) {
		device, err = unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
	})
	return strings.TrimRight(device, "\x00"), errors.Join(e, err)
}
