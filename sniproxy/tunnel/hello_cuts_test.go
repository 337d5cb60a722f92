package tunnel

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"

	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testnet"
)

// pieces cuts b into pieces of the sizes given, over and over: of n+1 bytes for
// each n, of at most most. No size is one piece after the other of that length.
func pieces(b, sizes []byte, most int) (list [][]byte) {
	for i := 0; len(b) > 0; i++ {
		n := most
		if len(sizes) > 0 {
			n = min(most, 1+int(sizes[i%len(sizes)]))
		}
		n = min(n, len(b))
		list = append(list, b[:n])
		b = b[n:]
	}
	return list
}

// A segmentReader gives a segment at each call.
type segmentReader struct{ segments [][]byte }

func (r *segmentReader) Read(p []byte) (int, error) {
	if len(r.segments) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.segments[0])
	if r.segments[0] = r.segments[0][n:]; len(r.segments[0]) == 0 {
		r.segments = r.segments[1:]
	}
	return n, nil
}

// scanSegments reads a hello that comes in these segments.
func scanSegments(segments [][]byte) (h hello, done bool, r *refusal.Refusal) {
	var s helloScanner
	var raw []byte
	for _, segment := range segments {
		raw = append(raw, segment...)
		if done, r = s.scan(raw); r != nil || done {
			break
		}
	}
	if done {
		h, r = parseHello(s.message(raw))
	}
	return h, done, r
}

// FuzzHelloCuts cuts one handshake message over TLS records, and these over TCP
// segments. However it is cut, the verdict is that of the whole; and crypto/tls,
// which reads the same segments, sees the same name and the same sign of a hidden
// hello, and finds none complete for which we wait. The protocols that a hello
// offers are none of the gate's business: its bytes go on as they are.
//
// probe: S1, S2, S3, S14, S15
// oracle: crypto/tls, as the server that the gate sends these bytes to would read
// them.
func FuzzHelloCuts(f *testing.F) {
	for _, msg := range helloMessages(f) {
		f.Add(msg, []byte{0}, []byte{0})
		f.Add(msg, []byte{255, 3, 0, 77}, []byte{4, 0, 130})
		f.Add(msg, []byte(nil), []byte(nil))
	}
	f.Fuzz(func(t *testing.T, msg, records, segments []byte) {
		var raw []byte
		for _, p := range pieces(msg, records, maxRecord) {
			raw = append(raw, testnet.Record(p)...)
		}
		if len(msg) > 20000 || len(pieces(raw, segments, 4096)) > 4000 {
			return // more takes longer and shows no more
		}
		h, done, r := scanSegments(pieces(raw, segments, 4096))
		whole, wholeDone, wholeFault := readWhole(testnet.Record(msg), 1<<20)
		// What follows a hello is refused in its last record and passes in one of its own.
		followed := len(msg) >= 4 && len(msg)-4 > int(binary.BigEndian.Uint32(msg)&0xffffff)
		if !followed && (!bytes.Equal(h.name, whole.name) || h.ech != whole.ech || done != wholeDone || (r == nil) != (wholeFault == nil)) {
			t.Fatalf("cut: %q, ech %v, %v, %v; whole: %q, ech %v, %v, %v", h.name, h.ech, done, r, whole.name, whole.ech, wholeDone, wholeFault)
		}
		info := opinionOf(&segmentReader{pieces(raw, segments, 4096)})
		switch {
		case !done && r == nil && info != nil:
			t.Fatalf("crypto/tls finds a hello complete that we wait for: %+v", info)
		case !done || r != nil || info == nil:
			return // one of the two is stricter, which only we may have to be
		}
		if info.ServerName != string(h.name) || hides(info.Extensions) != h.ech {
			t.Errorf("crypto/tls reads %q with extensions %v, we %q, ech %v", info.ServerName, info.Extensions, h.name, h.ech)
		}
	})
}

// hides reports whether one of the extensions may hold an encrypted hello or name.
func hides(extensions []uint16) bool {
	for _, kind := range []uint16{0xfe0d, 0xfe0c, 0xfe0b, 0xfe0a, 0xfe09, 0xfe08, 0xff02, 0xffce} {
		if slices.Contains(extensions, kind) {
			return true
		}
	}
	return false
}

// opinionOf is what crypto/tls makes of a hello; nil if it refuses it.
func opinionOf(r io.Reader) (info *tls.ClientHelloInfo) {
	_ = tls.Server(&segmentConn{Reader: r}, &tls.Config{
		GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			info = i
			return nil, errors.New("seen")
		},
	}).Handshake()
	return info
}

// A segmentConn is a connection that only gives segments.
type segmentConn struct {
	readConn
	io.Reader
}

func (c *segmentConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// helloMessages are handshake messages of one hello each: what clients send, and
// what makes readers disagree.
func helloMessages(tb testing.TB) [][]byte {
	plain := testnet.SNI("site.example")
	return [][]byte{
		testnet.GoHello(tb, "site.example")[recordHeader:],
		testnet.Message(plain),
		testnet.Message(),
		testnet.Message(plain, testnet.NewExt(16, []byte{0, 12, 2, 'h', '2', 8, 'h', 't', 't', 'p', '/', '1', '.', '1'})),
		testnet.Message(testnet.NewExt(0x0a0a, nil), testnet.NewExt(0x1a1a, []byte{0}), plain),
		testnet.Message(plain, testnet.NewExt(0xfe0d, []byte{0, 0, 1, 0, 1, 9, 0, 0, 0, 0})),
		testnet.Padded("site.example", 2000),
		testnet.Padded("site.example", 17000),
		testnet.Message(testnet.SNI("SITE.example\x00.evil.example")),
	}
}

// Both readers read what clients send, however it is cut; the fuzz target would
// not notice if one read nothing.
func TestHelloCutsAreRead(t *testing.T) {
	for i, msg := range helloMessages(t) {
		for _, sizes := range [][]byte{{0}, {255, 3, 0, 77}, nil} {
			var raw []byte
			for _, p := range pieces(msg, sizes, maxRecord) {
				raw = append(raw, testnet.Record(p)...)
			}
			_, done, r := scanSegments(pieces(raw, sizes, 4096))
			info := opinionOf(&segmentReader{pieces(raw, sizes, 4096)})
			if !done || r != nil || info == nil {
				t.Errorf("message %d in pieces of %v: %v, %v, crypto/tls %+v", i, sizes, done, r, info)
			}
		}
	}
}
