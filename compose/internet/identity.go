package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// An identity is a certificate for all names of this internet and the authority
// that signed it. Both keys are made at the start and kept in memory alone.
type identity struct {
	caPEM []byte
	leaf  tls.Certificate
}

func newIdentity(names []string) (*identity, error) {
	ca, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the server's key: %w", err)
	}
	now := time.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "sallyport demo authority"},
		NotBefore:    now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, 30),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, ca.Public(), ca)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	// Signing takes the authority's key identifier from the parsed form.
	if root, err = x509.ParseCertificate(rootDER); err != nil {
		return nil, fmt.Errorf("read the authority's certificate: %w", err)
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "sallyport demo server"},
		NotBefore:    root.NotBefore, NotAfter: root.NotAfter,
		DNSNames:    names,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, server, root, leaf.Public(), ca)
	if err != nil {
		return nil, fmt.Errorf("sign the server's certificate: %w", err)
	}
	return &identity{
		caPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}),
		leaf:  tls.Certificate{Certificate: [][]byte{leafDER}, PrivateKey: leaf},
	}, nil
}

// config is the servers' TLS configuration; it notes of each hello the
// name and what it offers.
func (id *identity) config(h *hits) *tls.Config {
	note := func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		h.add(hit{Time: time.Now(), Kind: "tls", Name: hello.ServerName, Detail: offer(hello),
			From: addrOf(hello.Conn.RemoteAddr()), To: addrOf(hello.Conn.LocalAddr())})
		return nil, nil // go on with this configuration
	}
	return &tls.Config{Certificates: []tls.Certificate{id.leaf}, GetConfigForClient: note}
}

func addrOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}
