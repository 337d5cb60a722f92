package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sallyport/gate/control"
)

// Where everything is. Each cell of the gate is a subnet of 127.77.0.0/16, with
// the gate at .2 and the client at .3.
var (
	upstreamAddr = netip.MustParseAddrPort("127.0.0.30:443")
	resolverAddr = netip.MustParseAddrPort("127.0.0.31:53")
	nginxAddr    = netip.MustParseAddrPort("127.0.0.32:443")
	haproxyAddr  = netip.MustParseAddrPort("127.0.0.33:443")
	tcpproxyAddr = netip.MustParseAddrPort("127.0.0.34:443")
	calmAddr     = netip.MustParseAddrPort("127.0.0.35:443")
)

// The names that the load asks for. That of the calm upstream is asked for where
// what the other one is busy with shall not be measured.
const (
	hostName = "www.site.example"
	calmName = "www.calm.example"
)

// A path is one way to a server: which of its addresses a client dials, and
// from where.
type path struct {
	server netip.AddrPort
	client netip.Addr
}

// A server is a running one.
type server struct {
	name  string
	cmd   *exec.Cmd
	log   *bytes.Buffer
	paths []path
	close func(context.Context) error // what is to be done before it is ended
}

func (s *server) pid() int { return s.cmd.Process.Pid }

// A kind starts servers of one kind.
type kind struct {
	name  string
	start func(ctx context.Context, b *bench) (*server, error)
}

// kinds are those that this machine has, ours first.
func (b *bench) kinds() []kind {
	all := []kind{{"gate", startGate}}
	for _, p := range []struct {
		kind
		program string
	}{{kind{"nginx", startNginx}, "nginx"}, {kind{"haproxy", startHAProxy}, "haproxy"}, {kind{"tcpproxy", startTCPProxy}, b.tcpproxy}} {
		if _, err := exec.LookPath(p.program); err != nil {
			fmt.Fprintf(b.log, "bench: no %s on this machine, left out\n", p.program)
			continue
		}
		all = append(all, p.kind)
	}
	return all
}

// run starts a program on the server's processor and waits until it accepts.
func (b *bench) run(ctx context.Context, name string, env []string, paths []path, command ...string) (*server, error) {
	s := &server{name: name, log: new(bytes.Buffer), paths: paths}
	s.cmd = exec.CommandContext(ctx, "taskset", append([]string{"-c", b.serverCPU}, command...)...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = nil, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return s, nil
}

// await waits until every path leads through.
func (s *server) await(hello []byte) error {
	deadline := time.Now().Add(10 * time.Second)
	for _, p := range s.paths {
		for {
			c, err := dial(p, hello)
			if err == nil {
				err = hangUp(c)
			}
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				s.stop(context.Background())
				return fmt.Errorf("%s does not lead to the upstream: %w\n%s", s.name, err, tail(s.log.String()))
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}

func (s *server) stop(ctx context.Context) {
	if s.close != nil {
		_ = s.close(ctx) // it is killed in any case
	}
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

func tail(s string) string { return s[max(0, len(s)-2000):] }

const allowlist = `version: 1
groups:
  web:
    - {host: .site.example, private: [127.0.0.0/8]}
    - {host: .calm.example, private: [127.0.0.0/8]}
policies:
  bench: {allow: [web]}
`

func startGate(ctx context.Context, b *bench) (*server, error) {
	file, socket := filepath.Join(b.dir, "allowlist.yaml"), filepath.Join(b.dir, "control.sock")
	if err := os.WriteFile(file, []byte(allowlist), 0o644); err != nil {
		return nil, err
	}
	env := []string{"SALLYPORT_ALLOWLIST=" + file, "SALLYPORT_CONTROL_SOCKET=" + socket,
		"SALLYPORT_RESOLVERS=" + resolverAddr.String(), "GOTRACEBACK=all"}
	s, err := b.run(ctx, "gate", env, nil, b.gate)
	if err != nil {
		return nil, err
	}
	client := &control.Client{Socket: socket}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err = client.Health(ctx); err == nil {
			break
		}
		if time.Now().After(deadline) {
			s.stop(ctx)
			return nil, fmt.Errorf("the gate does not answer: %w\n%s", err, tail(s.log.String()))
		}
	}
	var ids []string
	for i := range b.leases {
		net := netip.AddrFrom4([4]byte{127, 77, byte(i), 0})
		at, from := net.Next().Next(), net.Next().Next().Next()
		id := fmt.Sprintf("bench-%d", i)
		if _, err := client.Lease(ctx, id, control.Lease{Run: id, Policy: "bench", Address: at, Prefix: netip.PrefixFrom(net, 28)}); err != nil {
			s.stop(ctx)
			return nil, fmt.Errorf("lease a cell: %w", err)
		}
		ids = append(ids, id)
		s.paths = append(s.paths, path{netip.AddrPortFrom(at, 443), from})
	}
	s.close = func(ctx context.Context) error {
		var failed error
		for _, id := range ids {
			_, err := client.Release(ctx, id)
			failed = errors.Join(failed, err)
		}
		return failed
	}
	return s, nil
}

// goroutines ends a gate by a signal on which it prints every goroutine, and
// returns how many of them belong to the tunnel.
func (s *server) goroutines() (all, tunnel int) {
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	_ = s.cmd.Wait() // it exits with 2
	stacks := strings.Split(s.log.String(), "\n\n")
	stacks = slices.DeleteFunc(stacks, func(g string) bool { return !strings.HasPrefix(strings.TrimSpace(g), "goroutine ") })
	for _, g := range stacks {
		if strings.Contains(g, "sallyport/sniproxy") {
			tunnel++
		}
	}
	return len(stacks), tunnel
}

func startNginx(ctx context.Context, b *bench) (*server, error) {
	conf := fmt.Sprintf(`worker_processes 1;
daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr warn;
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
events { worker_connections 19000; }
stream {
    access_log off;
    map $ssl_preread_server_name $to { hostnames; .site.example %[2]s; .calm.example %[3]s; default ""; }
    server { listen %[4]s backlog=4096; ssl_preread on; proxy_pass $to; proxy_timeout 1h; }
}
`, b.dir, upstreamAddr, calmAddr, nginxAddr)
	file := filepath.Join(b.dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		return nil, err
	}
	return b.run(ctx, "nginx", nil, []path{{nginxAddr, nginxAddr.Addr()}}, "nginx", "-p", b.dir, "-e", "stderr", "-c", file)
}

func startHAProxy(ctx context.Context, b *bench) (*server, error) {
	conf := fmt.Sprintf(`global
    nbthread 1
    maxconn 9000
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend sni
    bind %s backlog 4096
    tcp-request inspect-delay 5s
    acl allowed req.ssl_sni -i -m end .site.example .calm.example
    use_backend calm if { req.ssl_sni -i -m end .calm.example }
    tcp-request content accept if { req.ssl_hello_type 1 } allowed
    tcp-request content reject if WAIT_END or { req.ssl_hello_type 1 }
    default_backend up
backend up
    server up %s
backend calm
    server up %s
`, haproxyAddr, upstreamAddr, calmAddr)
	file := filepath.Join(b.dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(conf), 0o644); err != nil {
		return nil, err
	}
	return b.run(ctx, "haproxy", nil, []path{{haproxyAddr, haproxyAddr.Addr()}}, "haproxy", "-db", "-f", file)
}

func startTCPProxy(ctx context.Context, b *bench) (*server, error) {
	return b.run(ctx, "tcpproxy", nil, []path{{tcpproxyAddr, tcpproxyAddr.Addr()}}, b.tcpproxy, tcpproxyAddr.String(),
		".site.example="+upstreamAddr.String(), ".calm.example="+calmAddr.String())
}

// noServer is what the load takes by itself.
var noServer = kind{"no server", func(context.Context, *bench) (*server, error) {
	return &server{name: "no server", log: new(bytes.Buffer), paths: []path{{upstreamAddr, upstreamAddr.Addr()}, {calmAddr, calmAddr.Addr()}}}, nil
}}
