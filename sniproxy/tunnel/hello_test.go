package tunnel

import (
	"bytes"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testnet"
)

// readWhole scans raw in steps of the given size, as if it arrived so, and
// parses the message; done is false where the hello is incomplete.
func readWhole(raw []byte, step int) (h hello, done bool, r *refusal.Refusal) {
	var s helloScanner
	for n := 0; n < len(raw) && !done; {
		n = min(n+step, len(raw))
		if done, r = s.scan(raw[:n]); r != nil {
			return hello{}, false, r
		}
	}
	if !done {
		return hello{}, false, nil
	}
	h, r = parseHello(s.message(raw))
	return h, true, r
}

// errSeen ends crypto/tls's handshake once it has read the hello.
var errSeen = errors.New("seen")

// secondOpinion is what crypto/tls makes of a hello; nil if it refuses it.
func secondOpinion(raw []byte) *tls.ClientHelloInfo {
	var info *tls.ClientHelloInfo
	server := tls.Server(&readConn{r: bytes.NewReader(raw)}, &tls.Config{
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			info = i
			return nil, errSeen
		},
	})
	_ = server.Handshake()
	return info
}

// A readConn is a connection that only gives bytes.
type readConn struct{ r *bytes.Reader }

func (c *readConn) Read(p []byte) (int, error)       { return c.r.Read(p) }
func (c *readConn) Write(p []byte) (int, error)      { return len(p), nil }
func (c *readConn) Close() error                     { return nil }
func (c *readConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *readConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *readConn) SetDeadline(time.Time) error      { return nil }
func (c *readConn) SetReadDeadline(time.Time) error  { return nil }
func (c *readConn) SetWriteDeadline(time.Time) error { return nil }

// FuzzHello holds the parser against crypto/tls: of a hello that both accept,
// both must say the same; and against itself: how a stream is cut must not
// matter.
func FuzzHello(f *testing.F) {
	good := testnet.SNI("site.example")
	for _, seed := range [][]byte{
		testnet.GoHello(f, "site.example"),
		testnet.Record(testnet.Message(good)),
		testnet.CutRecords(testnet.Message(good, testnet.NewExt(0x0a0a, nil), testnet.NewExt(0xfe0d, []byte{0})), 1),
		testnet.Record(testnet.Message(good, good)),
		testnet.Record(testnet.Message(testnet.SNIExt(testnet.SNIEntry(9, "x"), testnet.SNIEntry(0, "site.example")))),
		testnet.Record(testnet.Message(testnet.SNIExt(testnet.SNIEntry(0, "a.example"), testnet.SNIEntry(0, "b.example")))),
		append(testnet.Record(testnet.Message(good)), testnet.Record(testnet.Message(testnet.SNI("evil.example")))...),
		testnet.Record(append(testnet.Message(good), testnet.Message(testnet.SNI("evil.example"))...)),
		append([]byte{22, 3, 1, 0, 0}, testnet.Record(testnet.Message(good))...),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, done, r := readWhole(raw, len(raw)+1)
		for _, step := range []int{1, 7} {
			h2, done2, r2 := readWhole(raw, step)
			if !bytes.Equal(h.name, h2.name) || h.ech != h2.ech || done != done2 || (r == nil) != (r2 == nil) {
				t.Fatalf("in steps of %d: %q %v %v, whole: %q %v %v", step, h2.name, done2, r2, h.name, done, r)
			}
		}
		if !done || r != nil {
			return
		}
		if info := secondOpinion(raw); info != nil {
			if info.ServerName != string(h.name) {
				t.Errorf("the name is %q here and %q for crypto/tls", h.name, info.ServerName)
			}
			if ech := slices.ContainsFunc(info.Extensions, isECH); ech != h.ech {
				t.Errorf("ECH is %v here and %v for crypto/tls", h.ech, ech)
			}
		}
	})
}

// The second opinion is worth something only if it has one.
func TestSecondOpinion(t *testing.T) {
	for _, raw := range [][]byte{testnet.GoHello(t, "site.example"), testnet.CutRecords(testnet.GoHello(t, "site.example")[5:], 1)} {
		h, done, r := readWhole(raw, 100)
		info := secondOpinion(raw)
		if !done || r != nil || info == nil || info.ServerName != "site.example" || string(h.name) != "site.example" {
			t.Errorf("%q %v %v, crypto/tls %+v", h.name, done, r, info)
		}
	}
	if n := len(testnet.GoHello(t, "site.example")); n < 1200 {
		t.Errorf("Go's hello has %d bytes: not post-quantum", n)
	}
}

// The parser allocates nothing for a hello in one record.
func TestHelloAllocations(t *testing.T) {
	raw := testnet.GoHello(t, "site.example")
	if n := testing.AllocsPerRun(100, func() {
		var s helloScanner
		if done, _ := s.scan(raw); !done {
			t.Fatal("incomplete")
		}
		if h, _ := parseHello(s.message(raw)); h.name == nil {
			t.Fatal("no name")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
