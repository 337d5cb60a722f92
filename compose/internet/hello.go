package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// offer tells of a ClientHello what a simple client's does not have.
func offer(hello *tls.ClientHelloInfo) string {
	said := []string{"alpn=" + strings.Join(hello.SupportedProtos, ",")}
	if slices.ContainsFunc(hello.CipherSuites, isGREASE) {
		said = append(said, "grease")
	}
	if slices.Contains(hello.SupportedCurves, tls.X25519MLKEM768) {
		said = append(said, "post-quantum")
	}
	const ech = 0xfe0d // RFC 9849
	if slices.Contains(hello.Extensions, ech) {
		said = append(said, "ech")
	}
	return strings.Join(said, " ")
}

// isGREASE says whether a code point is one of those that RFC 8701 reserves.
func isGREASE(code uint16) bool { return code&0x0f0f == 0x0a0a && code>>8 == code&0xff }

// tlsPage says what the request came over.
func tlsPage(w http.ResponseWriter, r *http.Request) {
	if r.TLS == nil {
		fmt.Fprintln(w, "plain")
		return
	}
	fmt.Fprintf(w, "%s %s %s\n", tls.VersionName(r.TLS.Version), r.TLS.CurveID, r.Proto)
}
