package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

// What a client asks of the upstream once it has had its greeting: an op and a
// count of bytes, in network order.
const (
	opDown     = 'd' // the upstream sends that many
	opUp       = 'u' // the client does, and gets one byte when all have arrived
	opEnd      = 'e' // the upstream closes
	greeting   = 'g'
	commandLen = 9
	chunk      = 256 << 10
)

// What has this program be a far side alone: the upstream and the resolver, or the
// upstream that nobody downloads from.
const (
	farSideArg  = "far-side"
	calmSideArg = "calm-side"
)

// startFarSides starts the upstreams and the resolver in processes of their own, so
// that they have descriptors of their own, and waits until they serve. The calm one
// has the processor whenever it has work: it is not to be what is measured.
func (b *bench) startFarSides(ctx context.Context) (err error) {
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	return errors.Join(b.startFarSide(ctx, upstreamAddr, b.self, farSideArg),
		b.startFarSide(ctx, calmAddr, "nice", "-n", "-20", b.self, calmSideArg))
}

func (b *bench) startFarSide(ctx context.Context, addr netip.AddrPort, command ...string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = b.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the far side: %w", err)
	}
	go func() { _ = cmd.Wait() }() // it ends with ctx, or with this process
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr.String())
		if err == nil {
			return c.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("the far side does not serve: %w", err)
		}
	}
}

// farSide is the upstream and the resolver, until ctx ends.
func farSide(ctx context.Context, _ []string, _ io.Writer) error {
	if err := errors.Join(serveNames(ctx, resolverAddr), serveUpstream(ctx, upstreamAddr)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// calmSide is the upstream that nobody downloads from, until ctx ends.
func calmSide(ctx context.Context, _ []string, _ io.Writer) error {
	if err := serveUpstream(ctx, calmAddr); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// patience bounds every single exchange of the load.
const patience = 30 * time.Second

var zeros [chunk]byte

// serveUpstream is the host behind every tunnel. It takes a ClientHello for the
// greeting that it is and never speaks TLS: the arithmetic would be the load's,
// not the tunnel's.
func serveUpstream(ctx context.Context, addr netip.AddrPort) error {
	ln, err := net.Listen("tcp", addr.String())
	if err != nil {
		return fmt.Errorf("upstream: %w", err)
	}
	context.AfterFunc(ctx, func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	return nil
}

func answer(c net.Conn) {
	defer c.Close()
	var head [5]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	if err := receive(c, int64(binary.BigEndian.Uint16(head[3:]))); err != nil {
		return
	}
	if _, err := c.Write([]byte{greeting}); err != nil {
		return
	}
	var command [commandLen]byte
	for {
		if _, err := io.ReadFull(c, command[:]); err != nil {
			return
		}
		n := int64(binary.BigEndian.Uint64(command[1:]))
		var err error
		switch command[0] {
		case opDown:
			err = send(c, n)
		case opUp:
			if err = receive(c, n); err == nil {
				_, err = c.Write([]byte{greeting})
			}
		}
		if err != nil || command[0] == opEnd {
			return
		}
	}
}

func send(c net.Conn, n int64) error {
	for n > 0 {
		m, err := c.Write(zeros[:min(n, chunk)])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}

func receive(c net.Conn, n int64) error {
	buf := make([]byte, min(n, chunk))
	for n > 0 {
		m, err := c.Read(buf[:min(n, int64(len(buf)))])
		if n -= int64(m); err != nil && n > 0 {
			return err
		}
	}
	return nil
}

// serveNames is the resolver that the gate asks: every name is at the upstream, but
// for the calm host.
func serveNames(ctx context.Context, listen netip.AddrPort) error {
	pc, err := net.ListenPacket("udp", listen.String())
	if err != nil {
		return fmt.Errorf("resolver: %w", err)
	}
	s := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if name := q.Question[0].Name; q.Question[0].Qtype == dns.TypeA {
			addr := upstreamAddr.Addr()
			if name == calmName+"." {
				addr = calmAddr.Addr()
			}
			header := dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}
			m.Answer = []dns.RR{&dns.A{Hdr: header, A: addr.AsSlice()}}
		}
		_ = w.WriteMsg(m) // the gate asks again
	})}
	context.AfterFunc(ctx, func() { pc.Close() })
	go func() { _ = s.ActivateAndServe() }() // until pc is closed
	return nil
}
