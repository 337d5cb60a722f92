package tunnel

import (
	"io"
	"net"
	"testing"
	"time"

	"sallyport/sniproxy/testnet"
)

func BenchmarkHello(b *testing.B) {
	raw := testnet.GoHello(b, "site.example")
	b.ReportAllocs()
	for b.Loop() {
		var s helloScanner
		if done, r := s.scan(raw); !done || r != nil {
			b.Fatal(done, r)
		}
		if _, r := parseHello(s.message(raw)); r != nil {
			b.Fatal(r)
		}
	}
}

// benchCell is a cell whose port 443 leads to a server that answers each hello
// with one byte and then gives its connection to serve.
func benchCell(b testing.TB, serve func(net.Conn)) (*cell, []byte) {
	c := newCell(b, "strict", nil)
	hello := testnet.GoHello(b, "site.example")
	ln := testnet.Listen(b)
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := io.ReadFull(conn, make([]byte, len(hello))); err != nil {
					return
				}
				if _, err := conn.Write([]byte{22}); err == nil {
					serve(conn)
				}
			}()
		}
	}()
	c.Origin("127.0.0.1:443", ln.Addr().String())
	return c, hello
}

func openBench(b testing.TB, c *cell, hello []byte) net.Conn {
	conn, err := net.Dial("tcp", c.tls)
	if err != nil {
		b.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(testnet.Patience))
	if _, err := conn.Write(hello); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		b.Fatal(err)
	}
	return conn
}

// BenchmarkConnection opens and closes a tunnel. The allocations are those of
// client, gate and upstream together.
func BenchmarkConnection(b *testing.B) {
	c, hello := benchCell(b, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) })
	b.ReportAllocs()
	for b.Loop() {
		openBench(b, c, hello).Close()
	}
}

// BenchmarkDirect is BenchmarkConnection without the gate, to subtract.
func BenchmarkDirect(b *testing.B) {
	c, hello := benchCell(b, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) })
	for _, addr := range c.Origins() {
		c.tls = addr
	}
	b.ReportAllocs()
	for b.Loop() {
		openBench(b, c, hello).Close()
	}
}

// BenchmarkTunnel moves bytes from the upstream to the client.
func BenchmarkTunnel(b *testing.B) {
	const size = 64 << 20
	c, hello := benchCell(b, func(conn net.Conn) {
		buf := make([]byte, 256<<10)
		for range size / len(buf) {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 256<<10)
	b.SetBytes(size)
	for b.Loop() {
		conn := openBench(b, c, hello)
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, conn, buf); n != size || err != nil {
			b.Fatal(n, err)
		}
		conn.Close()
	}
}
