package cell

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"sallyport/entrypoint/probe"
)

// The test binary is also the keeper, the sandbox's probe and the far side's
// canary: this variable says which.
const stageVar = "SALLYPORT_TEST_STAGE"

var (
	gateAddr    = netip.MustParseAddr("172.31.255.2")
	hostAddr    = netip.MustParseAddr("172.31.255.1")
	sandboxAddr = netip.MustParseAddr("172.31.255.3")
	farAddr     = netip.MustParseAddr("198.51.100.7") // not in the cell's network
	farAddr6    = netip.MustParseAddr("fd5a::2")
)

// What the cell's kernel chooses, as the executor has the engine set it.
const ownLow, ownHigh = 32768, 36863

const (
	keeperID  = 65532 // the keeper's user after it gave up root
	sandboxID = 10001
)

func TestMain(m *testing.M) {
	stage := os.Getenv(stageVar)
	os.Unsetenv(stageVar)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	var err error
	switch stage {
	case "":
		if len(os.Args) == 2 && os.Args[1] == probe.Nothing {
			return
		}
		os.Exit(m.Run())
	case "keeper":
		if err = Seal(gateAddr); err == nil {
			err = Drop(keeperID, keeperID, []string{"/proc/self/exe"}, []string{stageVar + "=hold"})
		}
	case "hold":
		err = Hold(ctx, os.Stdout)
	case "probe":
		err = probe.Run(ctx, os.Stdin, os.Stdout)
	case "canary":
		err = probe.Canary(ctx, os.Stdin, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, stage+":", err)
		os.Exit(1)
	}
}

// inside runs f on a thread of its own in the namespace, and throws the thread
// away.
func inside(t *testing.T, ns netns.NsHandle, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(ns); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// newNamespace makes a network namespace with its loopback device up.
func newNamespace(t *testing.T) netns.NsHandle {
	t.Helper()
	var ns netns.NsHandle
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("make a network namespace (these tests need root): %w", err)
			return
		}
		var err error
		ns, err = netns.Get()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	inside(t, ns, func() error { return up("lo") })
	return ns
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func addAddress(device string, a netip.Prefix) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	n := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
	addr := &netlink.Addr{IPNet: n}
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	return netlink.AddrAdd(l, addr)
}

// A world is a cell's namespace and the far side, which plays gate, host and
// whatever else could be reached.
type world struct{ cell, far netns.NsHandle }

// newWorld connects two namespaces as an engine does, default route included.
func newWorld(t *testing.T) world {
	t.Helper()
	w := world{cell: newNamespace(t), far: newNamespace(t)}
	inside(t, w.far, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "far0"
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(w.cell)})
		if err != nil {
			return fmt.Errorf("connect the namespaces: %w", err)
		}
		for _, a := range []netip.Prefix{
			netip.PrefixFrom(hostAddr, 28), netip.PrefixFrom(gateAddr, 28),
			netip.PrefixFrom(farAddr, 32), netip.PrefixFrom(farAddr6, 64),
		} {
			if err := addAddress("far0", a); err != nil {
				return fmt.Errorf("add %s: %w", a, err)
			}
		}
		return up("far0")
	})
	inside(t, w.cell, func() error {
		own := fmt.Sprint(ownLow, " ", ownHigh)
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(own), 0); err != nil {
			return err
		}
		if err := addAddress("eth0", netip.PrefixFrom(sandboxAddr, 28)); err != nil {
			return err
		}
		if err := addAddress("eth0", netip.MustParsePrefix("fd5a::3/64")); err != nil {
			return err
		}
		if err := up("eth0"); err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Gw: hostAddr.AsSlice()})
	})
	return w
}

// command prepares a stage of the test binary; it must be started inside a
// namespace.
func command(t *testing.T, stage string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = []string{stageVar + "=" + stage}
	return cmd
}

// A keeper is a running keeper.
type keeper struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	said   string // its first line
}

// startKeeper starts a keeper in a namespace and waits for its first line, which
// is empty if it failed.
func startKeeper(t *testing.T, ns netns.NsHandle, as *syscall.Credential) *keeper {
	t.Helper()
	k := &keeper{cmd: command(t, "keeper")}
	k.cmd.Stderr = &k.stderr
	if as != nil {
		k.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	inside(t, ns, k.cmd.Start)
	k.said, _ = bufio.NewReader(out).ReadString('\n')
	return k
}

// stop ends the keeper in order.
func (k *keeper) stop(t *testing.T) {
	t.Helper()
	if err := k.cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Wait(); err != nil {
		t.Errorf("the keeper ended with %v: %s", err, k.stderr.String())
	}
}

// tryAll runs probes in a namespace as an unprivileged user.
func tryAll(t *testing.T, ns netns.NsHandle, probes []probe.Probe) map[string]probe.Result {
	t.Helper()
	request, err := json.Marshal(probe.Request{Probes: probes})
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "probe")
	var out, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &out, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: sandboxID, Gid: sandboxID}}
	inside(t, ns, cmd.Start)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("probe: %v: %s", err, stderr.String())
	}
	results := make(map[string]probe.Result)
	for d := json.NewDecoder(&out); ; {
		var r probe.Result
		if err := d.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		results[r.ID] = r
	}
	if len(results) != len(probes) {
		t.Fatalf("%d results of %d probes", len(results), len(probes))
	}
	return results
}

// A farCanary is a canary that runs in the far namespace.
type farCanary struct {
	port int

	mu   sync.Mutex // guards heard
	seen map[string]bool
}

func startCanary(t *testing.T, ns netns.NsHandle) *farCanary {
	t.Helper()
	cmd := command(t, "canary")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	inside(t, ns, cmd.Start)
	lines := json.NewDecoder(out)
	var first probe.CanaryLine
	if err := lines.Decode(&first); err != nil || first.Hello == nil {
		t.Fatalf("the canary's hello: %+v, %v", first, err)
	}
	c := &farCanary{port: first.Hello.Port, seen: make(map[string]bool)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			var line probe.CanaryLine
			if lines.Decode(&line) != nil || line.Hit == nil {
				return
			}
			c.mu.Lock()
			c.seen[line.Hit.Payload] = true
			c.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		stdin.Close()
		<-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the canary ended with %v", err)
		}
	})
	return c
}

func (c *farCanary) heard(token string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[token]
}

// echo serves an echo on an address until the test ends.
func echo(t *testing.T, ns netns.NsHandle, network string, at netip.AddrPort) {
	t.Helper()
	inside(t, ns, func() error {
		if network == "udp" {
			p, err := net.ListenPacket("udp4", at.String())
			if err != nil {
				return err
			}
			serve(t, p, func() error { return echoPacket(p) })
			return nil
		}
		l, err := net.Listen("tcp4", at.String())
		if err != nil {
			return err
		}
		serve(t, l, func() error { return echoConn(l) })
		return nil
	})
}

func serve(t *testing.T, c io.Closer, once func() error) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for once() == nil {
		}
	}()
	t.Cleanup(func() {
		c.Close()
		<-ended
	})
}

func echoPacket(p net.PacketConn) error {
	buf := make([]byte, 2048)
	n, from, err := p.ReadFrom(buf)
	if err != nil {
		return err
	}
	_, err = p.WriteTo(buf[:n], from)
	return err
}

func echoConn(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 2048)
	n, _ := c.Read(buf)
	c.Write(buf[:n])
	return nil
}
