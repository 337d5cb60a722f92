package forward

import (
	"testing"

	"sallyport/sniproxy/admission"
)

func BenchmarkRequest(b *testing.B) {
	raw := []byte("GET /debian/dists/stable/InRelease HTTP/1.1\r\nHost: deb.debian.org\r\nUser-Agent: Debian APT-HTTP/1.3 (3.0.3)\r\n" +
		"Accept: text/*\r\nCache-Control: max-age=0\r\nIf-Modified-Since: Sat, 09 Aug 2025 09:15:30 GMT\r\n\r\n")
	cell := new(admission.Cell)
	b.ReportAllocs()
	for b.Loop() {
		in := admission.NewHeadBuffer(cell)
		in.B = append(in.B, raw...)
		req, r := parseRequest(in.B)
		if r != nil {
			b.Fatal(r)
		}
		req.rewrite(in)
		in.Free()
	}
}
