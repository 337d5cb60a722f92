package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sallyport/gate/control"
)

// Each cell of the gate is a subnet of 127.78.0.0/16, with the gate at .2 and the
// client at .3. The peers are asked by the same clients.
var (
	unboundAddr = netip.MustParseAddrPort("127.0.0.34:53")
	dnsdistAddr = netip.MustParseAddrPort("127.0.0.35:53")
)

// A path is one way to a server: which of its addresses is asked, and from where.
type path struct {
	server netip.AddrPort
	client netip.Addr
}

// A server is a running one.
type server struct {
	name  string
	cmd   *exec.Cmd
	log   *exec.Cmd // copies what it prints
	out   *os.File  // ... to this file
	paths []path
}

// A kind starts servers of one kind.
type kind struct {
	name  string
	start func(ctx context.Context, b *bench) (*server, error)
}

// kinds are those that this machine has, ours first.
func (b *bench) kinds() []kind {
	all := []kind{{"gate", startGate(false)}, {"gate, with the file of decisions", startGate(true)}}
	for _, k := range []kind{
		{"unbound", startUnbound(false)}, {"unbound, logging replies", startUnbound(true)}, {"dnsdist", startDNSDist},
	} {
		program, _, _ := strings.Cut(k.name, ",")
		if _, err := exec.LookPath(program); err != nil {
			fmt.Fprintf(b.log, "bench: no %s on this machine, left out\n", k.name)
			continue
		}
		all = append(all, k)
	}
	return all
}

// run starts a program on the servers' processor. What it prints goes through a pipe
// to a process that writes it to a file, as under an engine.
func (b *bench) run(ctx context.Context, name string, env []string, command ...string) (*server, error) {
	out, err := os.CreateTemp(b.dir, "log-")
	if err != nil {
		return nil, err
	}
	s := &server{name: name, out: out}
	s.cmd = exec.CommandContext(ctx, "taskset", append([]string{"-c", b.serverCPU}, command...)...)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.log = exec.CommandContext(ctx, "cat")
	s.log.Stdout = out
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	s.log.Stdin, s.cmd.Stdout, s.cmd.Stderr = r, w, w
	if err := s.log.Start(); err != nil {
		return nil, fmt.Errorf("start the log of %s: %w", name, err)
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return s, nil
}

func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = s.log.Wait() // it ends with what it reads from
	s.out.Close()
	os.Remove(s.out.Name())
}

// tail is the end of what the server printed.
func (s *server) tail() string {
	b, err := os.ReadFile(s.out.Name())
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-2000):])
}

// cell is the nth subnet and its client.
func cell(n int) (subnet netip.Prefix, client netip.Addr) {
	first := netip.AddrFrom4([4]byte{127, 78, byte(n), 0})
	return netip.PrefixFrom(first, 28), first.Next().Next().Next()
}

// startGate starts the gate with a lease for each cell, and with the rotated file
// of decisions beside the log if it is wanted.
func startGate(file bool) func(context.Context, *bench) (*server, error) {
	return func(ctx context.Context, b *bench) (*server, error) {
		var more []string
		if file {
			more = append(more, "SALLYPORT_DECISION_LOG="+filepath.Join(b.dir, "decisions.ndjson"))
		}
		return b.startGate(ctx, more)
	}
}

func (b *bench) startGate(ctx context.Context, more []string) (*server, error) {
	var allow []string
	for i := range zones {
		allow = append(allow, fmt.Sprintf(".zone%02d.example", i+1))
	}
	// In a directory of its own: the gate watches it, and the log is written beside.
	config, socket := filepath.Join(b.dir, "gate"), filepath.Join(b.dir, "control.sock")
	if err := os.MkdirAll(config, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(config, "allowlist.yaml")
	text := "version: 1\npolicies:\n  bench: {allow: [" + strings.Join(allow, ", ") + "]}\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	env := []string{"SALLYPORT_ALLOWLIST=" + file, "SALLYPORT_CONTROL_SOCKET=" + socket, "SALLYPORT_RESOLVERS=127.0.0.1"}
	s, err := b.run(ctx, "gate", append(env, more...), b.gate)
	if err != nil {
		return nil, err
	}
	client := &control.Client{Socket: socket}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err = client.Health(ctx); err == nil {
			break
		}
		if time.Now().After(deadline) {
			defer s.stop()
			return nil, fmt.Errorf("the gate does not answer: %w\n%s", err, s.tail())
		}
	}
	for i := range b.leases {
		subnet, from := cell(i)
		at := subnet.Addr().Next().Next()
		_, err := client.Lease(ctx, fmt.Sprint("bench-", i), control.Lease{Run: "bench", Policy: "bench", Address: at, Prefix: subnet})
		if err != nil {
			defer s.stop()
			return nil, fmt.Errorf("lease a cell: %w", err)
		}
		s.paths = append(s.paths, path{netip.AddrPortFrom(at, 53), from})
	}
	return s, nil
}

// peerPaths are those to a server with one address.
func (b *bench) peerPaths(at netip.AddrPort) (paths []path) {
	for i := range b.leases {
		_, from := cell(i)
		paths = append(paths, path{at, from})
	}
	return paths
}

// startUnbound has all answers as local data: nothing is ever looked up.
func startUnbound(logs bool) func(context.Context, *bench) (*server, error) {
	return func(ctx context.Context, b *bench) (*server, error) {
		var conf strings.Builder
		fmt.Fprintf(&conf, `server:
    interface: %s@%d
    num-threads: 1
    do-daemonize: no
    username: ""
    chroot: ""
    directory: "%[3]s"
    pidfile: ""
    use-syslog: no
    logfile: ""
    log-replies: %[4]s
    module-config: "iterator"
    minimal-responses: yes
    local-zone: "." static
`, unboundAddr.Addr(), unboundAddr.Port(), b.dir, map[bool]string{true: "yes", false: "no"}[logs])
		for i := range zones {
			fmt.Fprintf(&conf, "    local-zone: \"zone%02[1]d.example.\" redirect\n    local-data: \"zone%02[1]d.example. 30 IN A 192.0.2.1\"\n", i+1)
		}
		conf.WriteString("remote-control:\n    control-enable: no\n")
		file := filepath.Join(b.dir, "unbound.conf")
		if err := os.WriteFile(file, []byte(conf.String()), 0o644); err != nil {
			return nil, err
		}
		s, err := b.run(ctx, "unbound", nil, "unbound", "-d", "-p", "-c", file)
		if err == nil {
			s.paths = b.peerPaths(unboundAddr)
		}
		return s, err
	}
}

func startDNSDist(ctx context.Context, b *bench) (*server, error) {
	var conf strings.Builder
	fmt.Fprintf(&conf, "setLocal('%s')\nsetACL('127.0.0.0/8')\nsetSecurityPollSuffix('')\nallowed = newSuffixMatchNode()\n", dnsdistAddr)
	for i := range zones {
		fmt.Fprintf(&conf, "allowed:add('zone%02d.example.')\n", i+1)
	}
	conf.WriteString(`addAction(AndRule{SuffixMatchNodeRule(allowed), QTypeRule(DNSQType.A)}, SpoofAction({'192.0.2.1'}, {ttl=30}))
addAction(AllRule(), RCodeAction(DNSRCode.NXDOMAIN))
`)
	file := filepath.Join(b.dir, "dnsdist.conf")
	if err := os.WriteFile(file, []byte(conf.String()), 0o644); err != nil {
		return nil, err
	}
	s, err := b.run(ctx, "dnsdist", nil, "dnsdist", "--supervised", "--disable-syslog", "-C", file)
	if err == nil {
		s.paths = b.peerPaths(dnsdistAddr)
	}
	return s, err
}

// cpuTime is what all threads of a process have used of the processor.
func cpuTime(pid int) (time.Duration, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("the server's threads: %w", err)
	}
	var sum time.Duration
	for _, t := range threads {
		b, err := os.ReadFile(filepath.Join(dir, t.Name(), "schedstat"))
		if err != nil {
			return 0, fmt.Errorf("the server's times: %w", err)
		}
		used, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(used, 10, 64) // in ns
		if err != nil {
			return 0, fmt.Errorf("the server's times: %w", err)
		}
		sum += time.Duration(n)
	}
	return sum, nil
}
