// Package sniproxy is the way out of one cell: a tunnel for TLS that is judged
// by the server name in the ClientHello, and a forwarder for plain HTTP that
// judges every request. Neither holds a key or looks inside TLS.
//
// For each TLS connection (ServeTLS) and each HTTP request (ServeHTTP1) a Server
// asks its policy about the name, resolves the name, has every address of the
// answer judged, dials the very address that was judged and leaves exactly one
// decision record. Whatever it cannot read with certainty it refuses: a refused
// name is never looked up, and nothing that a client sent leaves before the
// verdict.
//
// What the first ClientHello cannot show stays a residual: a client may ask an
// allowed server for another host inside the encrypted stream, or in the second
// hello that a retry request asks for, which matters where one address serves
// many tenants. An encrypted ClientHello would hide the name altogether, so it
// is refused unless the policy passes it. Real and GREASE ones are made to look
// the same (draft-ietf-tls-esni, section 6.2), so both are refused; a browser
// that sends GREASE needs a policy with `ech: pass`.
//
// The caller makes the listeners:
//
//	s := &sniproxy.Server{
//		Cell:   admission.Cell{Policy: policy, Prefix: cell, Record: ledger.Add},
//		Dialer: reach.Dialer{Resolver: resolver},
//	}
//	err := s.ServeTLS(ctx, listener) // returns when ctx ends and every tunnel is cut
package sniproxy

import (
	"context"
	"errors"
	"net"

	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/forward"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/tunnel"
)

// A Server forwards the TLS connections and HTTP requests of one cell. Its fields must
// not change once it serves. The zero value serves nothing.
type Server struct {
	admission.Cell
	reach.Dialer
	// Page is the host that the gate itself serves, if any.
	Page forward.Page
}

// ServeTLS tunnels the connections that ln accepts to port 443 of the host that
// each ClientHello names; ln must be a TCP listener of the system's, made with
// socket.ClientOptions. When ctx ends it closes ln, cuts every connection, waits for all
// that it started and returns nil; an error means that ln cannot be served.
func (s *Server) ServeTLS(ctx context.Context, ln net.Listener) error {
	if err := s.check(ln); err != nil {
		return err
	}
	return tunnel.Serve(ctx, ln, &s.Cell, &s.Dialer)
}

// ServeHTTP1 forwards the HTTP/1.1 requests of the connections that ln accepts
// to port 80 of the host that each request names. It is called and ends as ServeTLS.
func (s *Server) ServeHTTP1(ctx context.Context, ln net.Listener) error {
	if err := s.check(ln); err != nil {
		return err
	}
	return forward.Serve(ctx, ln, &s.Cell, &s.Dialer, s.Page)
}

// check refuses to serve without what is required, and closes ln then.
func (s *Server) check(ln net.Listener) error {
	if s.Resolver == nil || s.Record == nil {
		ln.Close()
		return errors.New("sniproxy: a server needs a resolver and a recorder")
	}
	return nil
}
