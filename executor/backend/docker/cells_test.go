package docker_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/cells"
	"sallyport/executor/backend/docker/dockertest"
	"sallyport/executor/backend/docker/engine"
)

func TestCellIsMadeAsItShould(t *testing.T) {
	s := dockertest.New(t)
	gate := s.EchoGate()
	cells := s.Cells(0)
	cell := acquire(t, cells)
	if !dockertest.Pool.Contains(cell.Prefix.Addr()) || cell.Prefix.Bits() != 28 || !cell.Prefix.Contains(cell.Gate) || !cell.Prefix.Contains(cell.Sandbox) {
		t.Errorf("cell %+v", cell)
	}
	networks := s.Networks()
	if len(networks) != 1 {
		t.Fatalf("%d networks, want 1", len(networks))
	}
	n, err := s.API.NetworkInspect(t.Context(), networks[0].ID, network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !n.Internal || n.EnableIPv6 || n.Attachable || n.Labels[engine.LabelCell] != cell.ID || n.Labels[engine.LabelRole] != engine.RoleNetwork ||
		n.Options["com.docker.network.bridge.inhibit_ipv4"] != "true" || n.Options["com.docker.network.bridge.gateway_mode_ipv4"] != "isolated" {
		t.Errorf("network %+v", n)
	}
	if got := n.Containers[gate].IPv4Address; got != netip.PrefixFrom(cell.Gate, 28).String() {
		t.Errorf("the gate is at %q", got)
	}
	if got := n.Containers[cell.Holder].IPv4Address; got != netip.PrefixFrom(cell.Sandbox, 28).String() {
		t.Errorf("the keeper is at %q", got)
	}
	keeper, err := s.API.ContainerInspect(t.Context(), cell.Holder)
	if err != nil {
		t.Fatal(err)
	}
	host := keeper.HostConfig
	if len(keeper.Mounts) != 0 || !host.ReadonlyRootfs || host.LogConfig.Type != "none" || host.Privileged || len(host.CapAdd) != 4 ||
		len(host.DNS) != 1 || host.DNS[0] != cell.Gate.String() || keeper.Config.Labels[engine.LabelRole] != engine.RoleCell {
		t.Errorf("keeper %+v %+v", keeper.Config, host)
	}
}

func TestCellsAreReusedOneRunAfterAnother(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cells := s.Cells(0)
	first := acquire(t, cells)
	second := acquire(t, cells)
	if first.Prefix.Overlaps(second.Prefix) || first.ID == second.ID {
		t.Errorf("two runs share a cell: %+v, %+v", first, second)
	}
	cells.Put(first)
	if again := acquire(t, cells); again != first {
		t.Errorf("a cell given back is not lent again: %+v, want %+v", again, first)
	}
}

// TestCellsAtOnce has many ask at the same time, for more than are ready.
func TestCellsAtOnce(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cells := s.Cells(2)
	ctx, stop := context.WithCancel(t.Context())
	var owner sync.WaitGroup
	owner.Go(func() { cells.Run(ctx) })
	defer owner.Wait()
	defer stop()
	eventually(t, "two cells are ready", func() bool { return len(s.Containers(engine.RoleCell)) == 2 })

	var mu sync.Mutex
	seen := make(map[netip.Prefix]bool)
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			cell, err := cells.Acquire(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[cell.Prefix] {
				t.Errorf("%s is lent twice", cell.Prefix)
			}
			seen[cell.Prefix] = true
		})
	}
	group.Wait()
	eventually(t, "two more are made ahead", func() bool { return len(s.Containers(engine.RoleCell)) == 7 })
}

// TestDamagedCellsAreDiscarded breaks cells that wait to be lent again.
//
// probe: X3
// oracle: which cell is lent next, and that a sandbox starts in it
func TestDamagedCellsAreDiscarded(t *testing.T) {
	s := dockertest.New(t)
	gate := s.EchoGate()
	cells := s.Cells(0)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	damaged := acquire(t, cells)
	for _, damage := range []struct {
		name string
		do   func(backend.Cell) error
	}{
		{"the keeper is dead", func(c backend.Cell) error { return s.API.ContainerKill(ctx, c.Holder, "KILL") }},
		{"the gate is disconnected", func(c backend.Cell) error {
			return s.API.NetworkDisconnect(ctx, s.Name+"-cell-"+c.ID, gate, true)
		}},
		{"the gate is at another address", func(c backend.Cell) error {
			if err := s.API.NetworkDisconnect(ctx, s.Name+"-cell-"+c.ID, gate, true); err != nil {
				return err
			}
			return s.API.NetworkConnect(ctx, s.Name+"-cell-"+c.ID, gate, &network.EndpointSettings{
				IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: c.Sandbox.Next().String()},
			})
		}},
		{"somebody else is there", func(c backend.Cell) error {
			s.Run(container.Config{Image: s.AgentImage, Entrypoint: []string{"/tool", "sleep"}, Labels: s.Labels("stranger")},
				container.HostConfig{NetworkMode: container.NetworkMode(s.Name + "-cell-" + c.ID)}, "")
			return nil
		}},
		{"the network is gone", func(c backend.Cell) error {
			for _, id := range []string{gate, c.Holder} {
				if err := s.API.NetworkDisconnect(ctx, s.Name+"-cell-"+c.ID, id, true); err != nil {
					return err
				}
			}
			return s.API.NetworkRemove(ctx, s.Name+"-cell-"+c.ID)
		}},
		{"the gate was made anew", func(backend.Cell) error {
			if err := s.API.ContainerRemove(ctx, gate, container.RemoveOptions{Force: true}); err != nil {
				return err
			}
			gate = s.EchoGate()
			return nil
		}},
	} {
		cells.Put(damaged)
		if err := damage.do(damaged); err != nil {
			t.Fatalf("%s: %v", damage.name, err)
		}
		next := acquire(t, cells)
		if next.ID == damaged.ID {
			t.Errorf("%s, and the cell was lent", damage.name)
		}
		start(t, s, s.Spec(next)) // the new one works
		damaged = next
	}

	run, stop := context.WithCancel(ctx)
	var owner sync.WaitGroup
	owner.Go(func() { cells.Run(run) })
	eventually(t, "the damaged cells are taken apart", func() bool { return len(s.Containers(engine.RoleCell)) == 1 })
	stop()
	owner.Wait()
}

// TestNoGateNoCell asks for cells without a gate, with a dead one, and with two.
//
// probe: N13
// oracle: the error, and a cell that is lent once the gate is back
func TestNoGateNoCell(t *testing.T) {
	s := dockertest.New(t)
	cells := s.Cells(0)
	if _, err := cells.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), "0 running containers are labelled as the gate") {
		t.Errorf("without a gate: %v", err)
	}
	gate := s.EchoGate()
	cell := acquire(t, cells)
	cells.Put(cell)
	if err := s.API.ContainerKill(t.Context(), gate, "KILL"); err != nil {
		t.Fatal(err)
	}
	if _, err := cells.Acquire(t.Context()); err == nil {
		t.Error("a cell was lent whose gate is dead")
	}
	if err := s.API.ContainerStart(t.Context(), gate, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	acquire(t, cells)
	s.EchoGate()
	if _, err := cells.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), "2 running containers") {
		t.Errorf("with two gates: %v", err)
	}
}

func TestGateStartsAgainAfterItsCellsHaveGone(t *testing.T) {
	s := dockertest.New(t)
	gate := s.EchoGate()
	cells := s.Cells(0)
	acquire(t, cells)
	if err := s.API.ContainerKill(t.Context(), gate, "KILL"); err != nil {
		t.Fatal(err)
	}
	if err := cells.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := s.Networks(); len(left) != 0 {
		t.Errorf("%d networks are left", len(left))
	}
	if err := s.API.ContainerStart(t.Context(), gate, container.StartOptions{}); err != nil {
		t.Error(err)
	}
}

// TestSlowEngine has an engine that takes longer to start a keeper than a keeper gets
// on a quick one. That a keeper which ends is not waited for is TestKeeperThatFails's.
func TestSlowEngine(t *testing.T) {
	socket := "/var/run/docker.sock"
	if host, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://"); ok {
		socket = host
	}
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "engine"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
	}
	slow := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/start") {
			time.Sleep(11 * time.Second)
		}
		forward.ServeHTTP(w, r)
	}))
	var err error
	if slow.Listener, err = net.Listen("unix", filepath.Join(t.TempDir(), "slow.sock")); err != nil {
		t.Fatal(err)
	}
	slow.Start()
	t.Cleanup(slow.Close)

	t.Setenv("DOCKER_HOST", "unix://"+slow.Listener.Addr().String())
	s := dockertest.New(t)
	s.EchoGate()
	acquire(t, s.Cells(0))
}

// TestKeeperThatFails has a keeper that says nothing.
//
// probe: N13, X3
// oracle: the engine, which has no object of the cell left
func TestKeeperThatFails(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	image := s.Image() // has no /cell
	cells, err := cells.NewPool(s.Engine, cells.Config{Image: image, Subnets: dockertest.Pool})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cells.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), "keeper of "+s.Name) {
		t.Errorf("error %v", err)
	}
	if n := len(s.Containers(engine.RoleCell)) + len(s.Networks()); n != 0 {
		t.Errorf("%d objects are left", n)
	}
}

// TestPoolIsUsedUp has a pool of two, of which a stranger has one.
//
// probe: L5
// oracle: the error, and the subnet of the next cell once there is room
func TestPoolIsUsedUp(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	// Two subnets somewhere in the far part of the tests' pool, of which a stranger
	// has one.
	third := byte(200 + rand.IntN(40))
	pool := netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, third, 0}), 27)
	near, far := netip.PrefixFrom(pool.Addr(), 28), netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 30, third, 16}), 28)
	stranger, err := s.API.NetworkCreate(t.Context(), s.Name+"-stranger", network.CreateOptions{
		Labels: s.Labels("stranger"), Internal: true, IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: near.String()}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cells, err := cells.NewPool(s.Engine, cells.Config{Image: s.CellImage, Subnets: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer cells.Close(context.Background())
	cell := acquire(t, cells)
	if cell.Prefix != far {
		t.Errorf("cell at %s", cell.Prefix)
	}
	if _, err := cells.Acquire(t.Context()); err == nil || !strings.Contains(err.Error(), "no free /28 is left in the pool "+pool.String()) {
		t.Errorf("error %v", err)
	}
	if err := s.API.NetworkRemove(t.Context(), stranger.ID); err != nil {
		t.Fatal(err)
	}
	if cell := acquire(t, cells); cell.Prefix != near {
		t.Errorf("cell at %s", cell.Prefix)
	}
}

func TestNewCellsRefuses(t *testing.T) {
	for name, cfg := range map[string]cells.Config{
		"zero":       {},
		"no image":   {Subnets: dockertest.Pool},
		"no pool":    {Image: "x"},
		"IPv6":       {Image: "x", Subnets: netip.MustParsePrefix("fd00::/16")},
		"small pool": {Image: "x", Subnets: netip.MustParsePrefix("10.0.0.0/29")},
		"negative":   {Image: "x", Subnets: dockertest.Pool, Ahead: -1},
	} {
		if _, err := cells.NewPool(nil, cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	s := dockertest.New(t)
	gate := s.EchoGate()
	cells := s.Cells(0)
	acquire(t, cells)
	cells.Put(acquire(t, cells))
	cells.Discard(acquire(t, cells))
	if err := cells.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := s.Containers(""); len(left) != 1 || left[0].ID != gate {
		t.Errorf("containers left: %v", left)
	}
	if left := s.Networks(); len(left) != 0 {
		t.Errorf("networks left: %v", left)
	}
	if _, err := cells.Acquire(t.Context()); err == nil {
		t.Error("a cell was made after Close")
	}
	if left := s.Networks(); len(left) != 0 {
		t.Errorf("networks left: %v", left)
	}
}

// TestCellsAreApart looks from one cell at another, at the host and at the gate.
// What a determined program can do is package boundary's to prove.
//
// probe: N7, N8, D2
// oracle: a server in the other sandbox; the own gate's ports answer beside it
func TestCellsAreApart(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cells := s.Cells(0)
	a, b := acquire(t, cells), acquire(t, cells)
	_, here := start(t, s, s.Spec(a))
	_, there := start(t, s, s.Spec(b))
	serve(t, there)

	for _, test := range []struct{ network, address, want string }{
		{"tcp", a.Gate.String() + ":443", "word\n"}, // positive controls
		{"tcp", a.Gate.String() + ":80", "word\n"},
		{"tcp", a.Gate.String() + ":53", "word\n"},
		{"udp", a.Gate.String() + ":53", "word\n"},
		{"tcp", a.Gate.String() + ":9", ""}, // listens, and is no port of the gate's
		{"tcp", b.Gate.String() + ":443", ""},
		{"udp", b.Gate.String() + ":53", ""},
		{"tcp", b.Sandbox.String() + ":9", ""},
		{"udp", b.Sandbox.String() + ":53", ""},
		{"tcp", "192.0.2.1:443", ""}, // TEST-NET-1
		{"udp", "192.0.2.1:53", ""},
		{"udp", "127.0.0.11:53", ""},
		{"tcp", "127.0.0.11:53", ""},
	} {
		out, exit := run(t, here, "dial", test.network, test.address)
		if (test.want != "") != (exit.Code == 0) || test.want != "" && out != test.want {
			t.Errorf("%s %s: %q, want %q", test.network, test.address, out, test.want)
		}
	}
}
