package sniproxy

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"testing"
)

// An ext is one extension of a hello that a test makes.
type ext struct {
	kind uint16
	data []byte
}

func vec16(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }

// sniEntry is one entry of a server name list.
func sniEntry(kind byte, name string) []byte { return append([]byte{kind}, vec16([]byte(name))...) }

func sniExt(entries ...[]byte) ext {
	return ext{0, vec16(bytes.Join(entries, nil))}
}

func sni(name string) ext { return sniExt(sniEntry(0, name)) }

// message makes a ClientHello handshake message.
func message(exts ...ext) []byte {
	b := []byte{3, 3}
	b = append(b, bytes.Repeat([]byte{7}, 32)...) // random
	b = append(b, 0)                              // session
	b = append(b, vec16([]byte{0x13, 0x01, 0xc0, 0x2f})...)
	b = append(b, 1, 0) // compression
	var list []byte
	for _, e := range exts {
		list = append(binary.BigEndian.AppendUint16(list, e.kind), vec16(e.data)...)
	}
	b = append(b, vec16(list)...)
	return handshake(1, b)
}

func handshake(kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	b[0] = kind
	return append(b, body...)
}

// cutRecords cuts a message into TLS records of at most size bytes.
func cutRecords(msg []byte, size int) []byte {
	var b []byte
	for len(msg) > 0 {
		n := min(size, len(msg))
		b = append(append(b, 22, 3, 1), vec16(msg[:n])...)
		msg = msg[n:]
	}
	return b
}

func record(msg []byte) []byte { return cutRecords(msg, maxRecord) }

// padded is a hello for name of at least size bytes.
func padded(name string, size int) []byte {
	return message(sni(name), ext{21, make([]byte, size)})
}

// goHello is the hello that Go's own client sends, post-quantum key share and all.
func goHello(tb testing.TB, name string) []byte {
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
