package sniproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/sniproxy/testnet"
)

func addrs(s string) (list []netip.Addr) {
	for f := range strings.FieldsSeq(s) {
		list = append(list, netip.MustParseAddr(f))
	}
	return list
}

func TestInterleave(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2": "[2001:db8::1 192.0.2.1 2001:db8::2 192.0.2.2]",
		"192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1":   "[2001:db8::1 192.0.2.1 192.0.2.2 192.0.2.3]",
		"192.0.2.1": "[192.0.2.1]", "2001:db8::1": "[2001:db8::1]", "": "[]",
	} {
		if got := fmt.Sprint(interleave(addrs(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// Dials that fail or hang: who is tried, when, and that all of them end.
//
// probe: R5
// oracle: the addresses that were dialled
func TestDialAnyStagger(t *testing.T) {
	const hang, fail = "hang", "fail"
	tests := []struct {
		name, addrs string
		answers     map[string]string
		tried       string
	}{
		{"all fail at once", "192.0.2.1 2001:db8::1", map[string]string{"192.0.2.1": fail, "2001:db8::1": fail},
			"2001:db8::1 at 0s, 192.0.2.1 at 0s"},
		{"the first hangs", "192.0.2.1 2001:db8::1", map[string]string{"192.0.2.1": fail, "2001:db8::1": hang},
			"2001:db8::1 at 0s, 192.0.2.1 at 250ms"},
		{"all hang, no more than four", "192.0.2.1 192.0.2.2 192.0.2.3 192.0.2.4 192.0.2.5", nil,
			"192.0.2.1 at 0s, 192.0.2.2 at 250ms, 192.0.2.3 at 500ms, 192.0.2.4 at 750ms"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var mu sync.Mutex
				var tried []string
				s := &Server{Dial: func(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
					mu.Lock()
					tried = append(tried, fmt.Sprintf("%v at %v", addr.Addr(), time.Since(start)))
					mu.Unlock()
					if tt.answers[addr.Addr().String()] == fail {
						return nil, errors.New("refused")
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}}
				ctx, cancel := context.WithTimeout(t.Context(), connectTimeout)
				defer cancel()
				conn, _, r := s.dialAny(ctx, addrs(tt.addrs), 443)
				if conn != nil || r == nil {
					t.Errorf("%v, %+v", conn, r)
				}
				if got := strings.Join(tried, ", "); got != tt.tried {
					t.Errorf("tried %s, want %s", got, tt.tried)
				}
			})
		})
	}
}

// The first to answer wins, the others are ended and closed.
func TestDialAnyWinner(t *testing.T) {
	ln := testnet.Listen(t)
	t.Cleanup(func() { ln.Close() })
	slow := make(chan struct{})
	s := &Server{Dial: func(ctx context.Context, addr netip.AddrPort) (*net.TCPConn, error) {
		if addr.Addr().Is6() {
			<-ctx.Done() // and connects at the last moment all the same
			close(slow)
		}
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}}
	conn, addr, r := s.dialAny(t.Context(), addrs("192.0.2.1 2001:db8::1"), 443)
	if r != nil || addr.String() != "192.0.2.1:443" {
		t.Fatalf("%v, %+v", addr, r)
	}
	defer conn.Close()
	<-slow
	var peers []net.Conn
	for range 2 {
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		peers = append(peers, c)
	}
	closed := 0
	for _, c := range peers {
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				closed++
			}
		}
	}
	if closed != 1 {
		t.Errorf("%d of 2 connections were closed, want 1", closed)
	}
}
