package tunnel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testnet"
)

// sendUrgent sends one byte of urgent data (RFC 9293, section 3.8.5).
func sendUrgent(t *testing.T, c *net.TCPConn, b byte) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var sent error
	if err := raw.Write(func(fd uintptr) bool {
		sent = unix.Sendto(int(fd), []byte{b}, unix.MSG_OOB, nil)
		return true
	}); err != nil || sent != nil {
		t.Fatal(err, sent)
	}
}

// An urgent byte is in the stream for some readers and not for others. Wherever it
// stands, the far side gets what was judged, and that names the host on record.
//
// probe: X6
// oracle: the bytes that arrive at the far side, and the name that crypto/tls reads
// in them; the record
func TestTunnelUrgentData(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	raw := testnet.Record(testnet.Message(testnet.SNI("site.example")))
	name := bytes.Index(raw, []byte("site"))
	for i, at := range []int{0, 1, 3, 5, 9, name - 1, name, name + 4, len(raw) - 1, len(raw)} {
		t.Run(fmt.Sprint("before byte ", at), func(t *testing.T) {
			client := testnet.Dial(t, c.tls)
			testnet.Send(t, client, raw[:at])
			sendUrgent(t, client, 'x')
			testnet.Send(t, client, raw[at:])
			up := k.Next(t)
			got := testnet.ReadN(t, up, len(raw))
			info := secondOpinion(got)
			if !bytes.Equal(got, raw) || info == nil || info.ServerName != "site.example" {
				t.Errorf("the far side got %q", got)
			}
			client.Close()
			up.Close()
			if r := c.Last(i + 1); r.Verdict != firewall.Allow || r.Host != info.ServerName {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// In a tunnel it is dropped, with what the kernel does not splice behind it; nothing
// else arrives in its place, and the tunnel ends with its client.
//
// probe: X6
// oracle: the bytes that arrive at the far side, and the record
func TestTunnelUrgentDataLater(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	client, up := c.open(k)
	testnet.Send(t, client, []byte("before"))
	testnet.ReadN(t, up, 6)
	sendUrgent(t, client, '!')
	testnet.Send(t, client, []byte("behind"))
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(up); err != nil || !bytes.HasPrefix([]byte("behind"), got) {
		t.Errorf("the far side got %q, %v", got, err)
	}
	client.Close()
	up.Close()
	if r := c.Last(1); r.Verdict != firewall.Allow {
		t.Errorf("record %+v", r)
	}
}

// Old fields of a hello may be odd. One that is well-formed passes as it is, one
// that is not is refused, and where crypto/tls reads a name we have read the same.
//
// probe: X10
// oracle: the bytes that arrive at a listener on the far side, or that none do; the
// reading of crypto/tls; the record
func TestTunnelOddHello(t *testing.T) {
	testnet.NoLeak(t)
	exts := func(e ...testnet.Ext) []byte { // an extensions block
		m := testnet.Message(e...)
		return m[4+2+32+1+2+4+2:]
	}
	// body is a hello's message in parts: version, session, cipher suites, compression.
	body := func(version uint16, session, ciphers, compression, rest []byte) []byte {
		b := binary.BigEndian.AppendUint16(nil, version)
		b = append(b, bytes.Repeat([]byte{7}, 32)...)
		b = append(append(b, byte(len(session))), session...)
		b = append(b, testnet.Vec16(ciphers)...)
		b = append(append(b, byte(len(compression))), compression...)
		return testnet.Record(testnet.Handshake(1, append(b, rest...)))
	}
	version := func(raw []byte, v byte) []byte {
		raw = bytes.Clone(raw)
		raw[2] = v
		return raw
	}
	good := exts(testnet.SNI("site.example"))
	suites, null := []byte{0x13, 0x01}, []byte{0}
	tests := []struct {
		name   string
		raw    []byte
		passes bool
	}{
		{"plain", body(0x0303, nil, suites, null, good), true},
		{"SSL 3.0 in the record", version(body(0x0303, nil, suites, null, good), 0), true},
		{"TLS 1.3 in the record", version(body(0x0303, nil, suites, null, good), 4), true},
		{"version 3.255 in the record", version(body(0x0303, nil, suites, null, good), 255), true},
		{"SSL 3.0 inside", body(0x0300, nil, suites, null, good), true},
		{"TLS 1.3 inside", body(0x0304, nil, suites, null, good), true},
		{"a session of 32 bytes", body(0x0303, make([]byte, 32), suites, null, good), true},
		{"deflate offered", body(0x0303, nil, suites, []byte{1, 0}, good), true},
		{"255 compressions", body(0x0303, nil, suites, bytes.Repeat([]byte{9}, 255), good), true},
		{"5000 cipher suites", body(0x0303, nil, bytes.Repeat([]byte{0x1a, 0x1a}, 5000), null, good), true},
		{"only GREASE to choose", body(0x0303, nil, []byte{0xca, 0xca}, null, good), true},

		{"version 4 in the record", append([]byte{22, 4}, body(0x0303, nil, suites, null, good)[2:]...), false},
		{"version 2 inside", body(0x0202, nil, suites, null, good), false},
		{"GREASE version inside", body(0x7a7a, nil, suites, null, good), false},
		{"a session of 33 bytes", body(0x0303, make([]byte, 33), suites, null, good), false},
		{"no cipher suite", body(0x0303, nil, nil, null, good), false},
		{"half a cipher suite", body(0x0303, nil, []byte{0x13, 1, 0x13}, null, good), false},
		{"no compression", body(0x0303, nil, suites, nil, good), false},
		{"extensions cut off", body(0x0303, nil, suites, null, good[:len(good)-1]), false},
		{"bytes after the extensions", body(0x0303, nil, suites, null, append(bytes.Clone(good), 0)), false},
	}
	c, k := newTunnelCell(t, nil)
	reached := int64(0)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := testnet.Dial(t, c.tls)
			testnet.Send(t, client, tt.raw)
			if tt.passes {
				reached++
				up := k.Next(t)
				if got := testnet.ReadN(t, up, len(tt.raw)); !bytes.Equal(got, tt.raw) {
					t.Errorf("the far side got %x", got)
				}
				up.Close()
			}
			client.CloseWrite()
			got, _ := io.ReadAll(client)
			r := c.Last(i + 1)
			if tt.passes && (r.Verdict != firewall.Allow || r.Host != "site.example") ||
				!tt.passes && (r.Reason != firewall.ReasonBadHello || !bytes.Equal(got, refusal.DecodeError.Record())) {
				t.Errorf("record %+v; the client got %x", r, got)
			}
			if info := secondOpinion(tt.raw); info != nil && tt.passes && info.ServerName != r.Host {
				t.Errorf("crypto/tls reads %q", info.ServerName)
			}
		})
	}
	if k.Count.Load() != reached || c.Resolver.Asked.Load() != reached {
		t.Errorf("%d connections and %d look-ups, want %d", k.Count.Load(), c.Resolver.Asked.Load(), reached)
	}
}

// However a tunnel stands when the lease ends, it ends: silent for long, closed by
// half from either side, stuck on a far side or a client that does not read.
//
// probe: P5, L11
// oracle: both ends of each tunnel, which are reset, and none of which was cut before;
// the records, one of each
func TestServeEndsEveryTunnel(t *testing.T) {
	testnet.NoLeak(t)
	c, k := newTunnelCell(t, nil)
	type tunnel struct{ client, up *net.TCPConn }
	states := map[string]func(tunnel){
		"silent":           func(tunnel) {},
		"client is done":   func(s tunnel) { _ = s.client.CloseWrite() },
		"upstream is done": func(s tunnel) { _ = s.up.CloseWrite() },
		"upstream is deaf": func(s tunnel) { testnet.Fill(t, s.client) },
		"client is deaf":   func(s tunnel) { testnet.Fill(t, s.up) },
		"urgent data": func(s tunnel) {
			sendUrgent(t, s.client, '!')
			sendUrgent(t, s.up, '!')
		},
	}
	tunnels := map[string]tunnel{}
	for name, bring := range states {
		client, up := c.open(k)
		tunnels[name] = tunnel{client, up}
		bring(tunnels[name])
	}
	if n := c.server.Open(); n != int64(len(states)) {
		t.Fatalf("%d tunnels, want %d", n, len(states))
	}
	c.End()
	for name, s := range tunnels {
		for side, conn := range map[string]*net.TCPConn{"client": s.client, "upstream": s.up} {
			_ = conn.SetDeadline(time.Now().Add(testnet.Patience))
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the %s's end is still open", name, side)
			}
			testnet.Eventually(t, name+": the "+side+"'s writes to fail", func() bool {
				_, err := conn.Write([]byte("x"))
				return err != nil
			})
		}
	}
	for _, r := range c.Wait(len(states)) {
		if r.Verdict != firewall.Allow || r.Detail != "cut by the gate" {
			t.Errorf("record %+v", r)
		}
	}
}
