package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

// settings are what the command line says. All are required.
type settings struct {
	LAN, WAN netip.Addr
	Dir      string
}

// adminPort is where the hits are read. No cell reaches it: the gate forwards
// ports 80 and 443 only.
const adminPort = 7299

// serve plays the internet until ctx ends or a part of it fails.
func serve(ctx context.Context, s settings, h *hits) error {
	zone, err := parseZone(s)
	if err != nil {
		return err
	}
	id, err := newIdentity(zone.names())
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "internet-")
	if err != nil {
		return fmt.Errorf("make a directory for the sites: %w", err)
	}
	defer os.RemoveAll(scratch)
	keyFile := filepath.Join(s.Dir, "github-app.pem")
	key, err := os.ReadFile(keyFile) // of an earlier start: an executor may have read it
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the App's key: %w", err)
	}
	sites, hub, err := newSites(ctx, scratch, key)
	if err != nil {
		return err
	}
	if err := publish(filepath.Join(s.Dir, "ca.pem"), id.caPEM, 0o644); err != nil {
		return err
	}
	// Its reader is an executor that may read any file; nobody else of this volume's may.
	if err := publish(keyFile, hub.KeyPEM(), 0o600); err != nil {
		return err
	}
	inner, err := otherAddresses(s)
	if err != nil {
		return err
	}
	admin := http.NewServeMux()
	admin.Handle("/", h.admin())
	admin.Handle("/github/", hub.Control())
	err = listen(ctx, s, h, &resolver{zone: zone, hits: h}, sites, admin, inner, id)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// otherAddresses are own addresses beside the two: those in the executor's network, where
// the executor finds GitHub's API by its name.
func otherAddresses(s settings) ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list own addresses: %w", err)
	}
	var others []netip.Addr
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if addr := prefix.Addr(); err == nil && addr.Is4() && !addr.IsLoopback() && addr != s.LAN && addr != s.WAN {
			others = append(others, addr)
		}
	}
	return others, nil
}

// listen serves everything on both addresses, and the sites over TLS on the inner ones.
func listen(ctx context.Context, s settings, h *hits, names *resolver, sites, admin http.Handler, inner []netip.Addr, id *identity) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, addr := range []netip.Addr{s.LAN, s.WAN} {
		for _, port := range tcpCanaries {
			group.Go(func() error { return serveTCPCanary(ctx, netip.AddrPortFrom(addr, port), h) })
		}
		for _, port := range udpCanaries {
			group.Go(func() error { return serveUDPCanary(ctx, netip.AddrPortFrom(addr, port), h) })
		}
		for _, network := range []string{"udp", "tcp"} {
			group.Go(func() error { return serveDNS(ctx, network, netip.AddrPortFrom(addr, 53), names) })
		}
		group.Go(func() error {
			return serveHTTP(ctx, netip.AddrPortFrom(addr, 80), &http.Server{Handler: h.count("http", sites)})
		})
		group.Go(func() error {
			return serveHTTP(ctx, netip.AddrPortFrom(addr, 443), &http.Server{
				Handler: h.count("https", sites), TLSConfig: id.config(h),
			})
		})
	}
	for _, addr := range inner {
		group.Go(func() error {
			return serveHTTP(ctx, netip.AddrPortFrom(addr, 443), &http.Server{
				Handler: h.count("https", sites), TLSConfig: id.config(h),
			})
		})
	}
	group.Go(func() error {
		return serveHTTP(ctx, netip.AddrPortFrom(s.LAN, adminPort), &http.Server{Handler: admin})
	})
	return group.Wait()
}

// publish renames the file into place: who reads it reads all of it.
func publish(path string, content []byte, mode os.FileMode) error {
	part := path + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write %s: %w", path, err) // a left-over with another mode
	}
	if err := os.WriteFile(part, content, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// serveHTTP serves HTTP, or HTTPS where the server has a TLS configuration.
func serveHTTP(ctx context.Context, at netip.AddrPort, srv *http.Server) error {
	srv.ReadHeaderTimeout = 10 * time.Second
	srv.ErrorLog = quiet // handshakes that fail are hits, not errors
	ln, err := net.Listen("tcp", at.String())
	if err != nil {
		return fmt.Errorf("serve %s: %w", at, err)
	}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if srv.TLSConfig != nil {
		err = srv.ServeTLS(ln, "", "")
	} else {
		err = srv.Serve(ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return ctx.Err()
	}
	return fmt.Errorf("serve %s: %w", at, err)
}

// serveDNS serves one address over one of udp and tcp.
func serveDNS(ctx context.Context, network string, at netip.AddrPort, h dns.Handler) error {
	srv := &dns.Server{Addr: at.String(), Net: network, Handler: h}
	defer context.AfterFunc(ctx, func() { _ = srv.Shutdown() })()
	if err := srv.ListenAndServe(); err != nil {
		return fmt.Errorf("serve DNS on %s/%s: %w", at, network, err)
	}
	return ctx.Err()
}
