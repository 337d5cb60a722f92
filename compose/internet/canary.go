package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// The ports on which nothing from a cell may ever arrive.
var (
	tcpCanaries = []uint16{22, 25, 853, 8443}
	udpCanaries = []uint16{123, 443}
)

// serveTCPCanary notes each connection, says so to the client and closes it.
func serveTCPCanary(ctx context.Context, at netip.AddrPort, h *hits) error {
	to := at.String()
	ln, err := net.Listen("tcp", to)
	if err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("canary %s: %w", to, err)
		}
		h.add(hit{Time: time.Now(), Kind: "tcp", From: c.RemoteAddr().String(), To: to})
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte("reached\n"))
		c.Close()
	}
}

// serveUDPCanary notes each packet and answers it.
func serveUDPCanary(ctx context.Context, at netip.AddrPort, h *hits) error {
	to := at.String()
	c, err := net.ListenPacket("udp", to)
	if err != nil {
		return fmt.Errorf("canary: %w", err)
	}
	defer context.AfterFunc(ctx, func() { c.Close() })()
	buf := make([]byte, 2048)
	for {
		_, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("canary %s: %w", to, err)
		}
		h.add(hit{Time: time.Now(), Kind: "udp", From: from.String(), To: to})
		_, _ = c.WriteTo([]byte("reached\n"), from)
	}
}
