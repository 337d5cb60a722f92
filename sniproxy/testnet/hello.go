package testnet

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"testing"
)

// An Ext is one extension of a hello that a test makes.
type Ext struct {
	Kind uint16
	Data []byte
}

// NewExt makes an extension.
func NewExt(kind uint16, data []byte) Ext { return Ext{kind, data} }

// Vec16 is b with its length before it, in two bytes.
func Vec16(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }

// SNIEntry is one entry of a server name list.
func SNIEntry(kind byte, name string) []byte { return append([]byte{kind}, Vec16([]byte(name))...) }

// SNIExt is a server_name extension.
func SNIExt(entries ...[]byte) Ext {
	return Ext{0, Vec16(bytes.Join(entries, nil))}
}

// SNI is the extension that names one host.
func SNI(name string) Ext { return SNIExt(SNIEntry(0, name)) }

// Message makes a ClientHello handshake message.
func Message(exts ...Ext) []byte {
	b := []byte{3, 3}
	b = append(b, bytes.Repeat([]byte{7}, 32)...) // random
	b = append(b, 0)                              // session
	b = append(b, Vec16([]byte{0x13, 0x01, 0xc0, 0x2f})...)
	b = append(b, 1, 0) // compression
	var list []byte
	for _, e := range exts {
		list = append(binary.BigEndian.AppendUint16(list, e.Kind), Vec16(e.Data)...)
	}
	b = append(b, Vec16(list)...)
	return Handshake(1, b)
}

// Handshake makes a handshake message.
func Handshake(kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b[0] = kind
	return append(b, body...)
}

// CutRecords cuts a message into TLS records of at most size bytes.
func CutRecords(msg []byte, size int) []byte {
	var b []byte
	for len(msg) > 0 {
		n := min(size, len(msg))
		b = append(append(b, 22, 3, 1), Vec16(msg[:n])...)
		msg = msg[n:]
	}
	return b
}

// Record cuts a message into as few TLS records as it takes.
func Record(msg []byte) []byte { return CutRecords(msg, 1<<14) }

// Padded is a hello for name of at least size bytes.
func Padded(name string, size int) []byte {
	return Message(SNI(name), Ext{21, make([]byte, size)})
}

// GoHello is the hello that Go's own client sends, post-quantum key share and all.
func GoHello(tb testing.TB, name string) []byte {
	tb.Helper()
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		_ = tls.Client(far, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
		far.Close()
	}()
	buf := make([]byte, 1<<16)
	n, err := near.Read(buf)
	if err != nil {
		tb.Fatal(err)
	}
	return buf[:n]
}

// HelloFor is a small hello for a host, in one record.
func HelloFor(name string) []byte { return Record(Message(SNI(name))) }
