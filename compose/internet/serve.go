package main

import (
	"context"
	"errors"
	"fmt"
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
	sites, err := newSites(ctx, scratch)
	if err != nil {
		return err
	}
	if err := publish(filepath.Join(s.Dir, "ca.pem"), id.caPEM); err != nil {
		return err
	}
	err = listen(ctx, s, h, &resolver{zone: zone, hits: h}, sites, id)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// listen serves everything on both addresses.
func listen(ctx context.Context, s settings, h *hits, names *resolver, sites http.Handler, id *identity) error {
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
	group.Go(func() error {
		return serveHTTP(ctx, netip.AddrPortFrom(s.LAN, adminPort), &http.Server{Handler: h.admin()})
	})
	return group.Wait()
}

// publish renames the file into place: who reads it reads all of it.
func publish(path string, content []byte) error {
	if err := os.WriteFile(path+".part", content, 0o644); err != nil {
		return fmt.Errorf("write the authority's certificate: %w", err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		return fmt.Errorf("write the authority's certificate: %w", err)
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
