package boundary_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"sallyport/entrypoint/probe"
	"sallyport/executor/backend"
	"sallyport/executor/backend/docker"
	"sallyport/executor/backend/docker/dockertest"
	"sallyport/executor/backend/docker/engine"
	"sallyport/executor/boundary"
	"sallyport/gate/control"
)

func TestMain(m *testing.M) { dockertest.Main(m) }

const allowlist = `version: 1
policies:
  strict: {allow: [.listed.example]}
  open:   {allow: any}
`

// checker is a checker on a stack with a real gate.
func checker(t *testing.T, s *dockertest.Stack, cells backend.Cells) *boundary.Checker {
	t.Helper()
	gate := &control.Client{Socket: s.Gate(allowlist)}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, err := gate.Health(t.Context())
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the gate does not come up:", err)
		}
	}
	return &boundary.Checker{
		Backend: s.Backend(), Cells: cells, Gate: gate, Policy: "strict",
		Engine: func(ctx context.Context) (string, error) {
			r, err := s.Engine.Check(ctx)
			return r.String(), err
		},
		Image: s.AgentImage, UID: dockertest.AgentUID, GID: dockertest.AgentUID,
		Workspaces: t.TempDir(), Background: new(sync.WaitGroup), Log: dockertest.Log(t),
	}
}

// tried is all that a proof finds out, written out here once more: nothing is left out of it
// without a word, however quick it is made.
const tried = `
controls
gate refuses unlisted names (dns)
gate refuses internal names (dns)
gate refuses unlisted names (tls)
gate refuses tls without a name
gate refuses unlisted names (http)
gate has no other port (tcp)
gate has no other port (udp)
icmp to the gate
host listener (tcp)
host listener (udp)
host listener (tcp, past the routes)
host listener (udp, past the routes)
icmp to the host
host listener (ipv6)
host listener (broadcast)
host listener (multicast)
other sandbox (tcp)
other sandbox (udp)
other sandbox (past the routes)
icmp to another cell
gate in another cell (dns)
gate in another cell (tcp)
gate in another cell (past the routes)
direct address (tcp)
direct address (udp)
direct address (icmp)
embedded resolver (udp)
embedded resolver (tcp)
kernel: raw-socket
kernel: packet-socket
kernel: socket-families
kernel: socket-pairs
kernel: socket-types
kernel: net-admin
kernel: nftables
kernel: mount
kernel: unshare
kernel: setuid
kernel: mknod
kernel: chroot
kernel: ptrace-pid1
kernel: limits-pid1
kernel: core-limit
kernel: keyctl
kernel: bpf
kernel: perf
kernel: userfaultfd
kernel: io-uring
kernel: open-by-handle
host listener (anything else from the cell)
other sandbox (anything else from the cell)
gate records what it refused
gate heard nothing in another cell
process: is not root
process: no other group
process: no capabilities
process: no new privileges
process: system calls are filtered
process: descriptors 0 to 2 only
process: environment as given
process: no sockets of the host
process: root is read-only
process: nothing of the host is mounted
process: sees its own processes only
`

// TestBoundaryHolds makes the whole proof, as the executor does before its first run.
//
// probe: N1, N2, N3, N4, N5, N6, N7, N8, N10, N11, X2, D1, D2, C1, C3, C5, C7, C10, C15, C16
// oracle: canaries on the host and in another cell, which hear themselves on every
// address and nothing of the sandbox; the receipts of both cells
func TestBoundaryHolds(t *testing.T) {
	s := dockertest.New(t)
	cells := s.Cells(0)
	c := checker(t, s, cells)
	for i := range 2 { // the second time in the same cells
		began := time.Now()
		if i > 0 { // no host has as much
			c.Need = probe.Tables{TCPBytes: 1 << 60, Connections: 1 << 60}
		}
		report, err := c.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s, %d ms", report.Engine, time.Since(began).Milliseconds())
		c.Background.Wait() // so that its cells are there again
		for _, f := range report.Findings {
			t.Logf("%-5v %s: %s", f.Passed, f.Name, f.Detail)
			if !f.Passed {
				t.Errorf("%s got through: %s", f.Name, f.Detail)
			}
		}
		var names []string
		for _, f := range report.Findings {
			names = append(names, f.Name)
		}
		if want := strings.Split(strings.TrimSpace(tried), "\n"); !slices.Equal(names, want) {
			t.Errorf("the proof has\n%s\nwant\n%s", strings.Join(names, "\n"), tried)
		}
		if !report.Passed || !strings.HasPrefix(report.Engine, "docker ") || report.CheckedAt.IsZero() {
			t.Errorf("report %+v", report)
		}
		if len(report.Warnings) != 2*i {
			t.Errorf("warnings %q of what the host has too little of", report.Warnings)
		}
	}
	nothingLeft(t, s, c)
	if n := len(s.Containers(engine.RoleCell)); n != 2 {
		t.Errorf("%d keepers, want the 2 of the cells", n)
	}
}

// nothingLeft looks for what a check should have removed.
func nothingLeft(t *testing.T, s *dockertest.Stack, c *boundary.Checker) {
	t.Helper()
	c.Background.Wait()
	if left := append(s.Containers(engine.RoleSandbox), s.Containers(engine.RoleCanary)...); len(left) != 0 {
		t.Errorf("containers left: %v", left)
	}
	if left, err := os.ReadDir(c.Workspaces); err != nil || len(left) != 0 {
		t.Errorf("workspaces left: %v, %v", left, err)
	}
	if gate, ok := c.Gate.(*control.Client); ok {
		if h, err := gate.Health(t.Context()); err == nil && h.Cells != 0 {
			t.Errorf("%d leases left", h.Cells)
		}
	}
}

// leaky makes cells by hand that are weaker than they should be.
type leaky struct {
	stack *dockertest.Stack
	mu    sync.Mutex // guards next
	next  netip.Addr
	// bridge gives the host an address in the network, elsewhere names another network
	// that the sandbox is on as well. In none of them is there a keeper.
	bridge    bool
	elsewhere string
}

func (l *leaky) Acquire(ctx context.Context) (backend.Cell, error) {
	s := l.stack
	prefix := l.subnet()
	cell := backend.Cell{ID: "leaky-" + strings.ReplaceAll(prefix.Addr().String(), ".", "-"), Prefix: prefix}
	cell.Gate = prefix.Addr().Next().Next()
	cell.Sandbox = cell.Gate.Next()
	labels := s.Labels(engine.RoleNetwork)
	labels[engine.LabelCell] = cell.ID
	options := map[string]string{}
	if !l.bridge {
		options["com.docker.network.bridge.inhibit_ipv4"] = "true"
	}
	name := s.Name + "-cell-" + cell.ID
	if _, err := s.API.NetworkCreate(ctx, name, network.CreateOptions{
		Internal: true, Labels: labels, Options: options,
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: prefix.String()}}},
	}); err != nil {
		if strings.Contains(err.Error(), "overlaps") { // with another process of these tests
			return l.Acquire(ctx)
		}
		return cell, err
	}
	gates := s.Containers(engine.RoleGate)
	if len(gates) != 1 {
		return cell, errors.New("no gate")
	}
	if err := s.API.NetworkConnect(ctx, name, gates[0].ID, &network.EndpointSettings{
		IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: cell.Gate.String()},
	}); err != nil {
		return cell, err
	}
	created, err := s.API.ContainerCreate(ctx, &container.Config{
		Image: s.CellImage, Entrypoint: []string{"/tool", "sleep"}, Labels: s.Labels(engine.RoleCell), Hostname: "sandbox",
	}, &container.HostConfig{NetworkMode: container.NetworkMode(name)}, &network.NetworkingConfig{
		EndpointsConfig: map[string]*network.EndpointSettings{
			name: {IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: cell.Sandbox.String()}},
		},
	}, nil, "")
	if err != nil {
		return cell, err
	}
	cell.Holder = created.ID
	if l.elsewhere != "" {
		if err := s.API.NetworkConnect(ctx, l.elsewhere, created.ID, nil); err != nil {
			return cell, err
		}
	}
	return cell, s.API.ContainerStart(ctx, created.ID, container.StartOptions{})
}

func (l *leaky) subnet() netip.Prefix {
	l.mu.Lock()
	defer l.mu.Unlock()
	prefix := netip.PrefixFrom(l.next, 28)
	for range 16 {
		l.next = l.next.Next()
	}
	return prefix
}

func (l *leaky) Put(backend.Cell)     {} // the stack's end sweeps them
func (l *leaky) Discard(backend.Cell) {}

// TestProofCanFail weakens one wall after another: each time the proof must name
// what gets through, although all the other walls stand.
//
// probe: X3, X2, N5
// oracle: the same canaries, which do hear the sandbox as soon as one wall is missing
func TestProofCanFail(t *testing.T) {
	for name, test := range map[string]struct {
		cells *leaky
		want  []string // at least
	}{
		"no keeper in the namespace": {
			&leaky{next: netip.MustParseAddr("172.30.250.0")},
			[]string{"host listener (broadcast)", "host listener (multicast)"},
		},
		"a plain internal network": {
			&leaky{next: netip.MustParseAddr("172.30.251.0"), bridge: true},
			[]string{"host listener (tcp)", "host listener (udp)", "embedded resolver (udp)"},
		},
		"a sandbox on the default bridge, too": {
			&leaky{next: netip.MustParseAddr("172.30.252.0"), elsewhere: "bridge"},
			[]string{"host listener (tcp)", "host listener (udp)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := dockertest.New(t)
			test.cells.stack = s
			c := checker(t, s, test.cells)
			report, err := c.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Findings {
				if !f.Passed {
					t.Logf("%s: %s", f.Name, f.Detail)
				}
			}
			if report.Passed {
				t.Error("the proof passed")
			}
			for _, name := range test.want {
				if !slices.Contains(report.Failed(), name) {
					t.Errorf("%q held", name)
				}
			}
			nothingLeft(t, s, c)
		})
	}
}

// A weak backend has its sandboxes changed on their way to the engine.
type weak struct {
	*docker.Backend                 // starts the canary on the host
	sandboxes       backend.Starter // whose engine is behind the proxy
}

func (w weak) Start(ctx context.Context, s backend.Spec) (*backend.Sandbox, error) {
	return w.sandboxes.Start(ctx, s)
}

// weaken puts a proxy before the engine, which changes what containers are made of.
func weaken(t *testing.T, s *dockertest.Stack, change func(config, host map[string]any)) weak {
	t.Helper()
	socket := strings.TrimPrefix(s.API.DaemonHost(), "unix://")
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}},
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "engine"})
			if !strings.HasSuffix(r.In.URL.Path, "/containers/create") {
				return
			}
			var config map[string]any
			if err := json.NewDecoder(r.In.Body).Decode(&config); err != nil {
				t.Error(err)
			}
			change(config, config["HostConfig"].(map[string]any))
			body, err := json.Marshal(config)
			if err != nil {
				t.Error(err)
			}
			r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		},
	})
	t.Cleanup(proxy.Close)
	t.Setenv("DOCKER_HOST", "tcp://"+proxy.Listener.Addr().String())
	engine, err := engine.Open(t.Context(), engine.Config{Stack: s.Name, State: s.State, Log: dockertest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close() })
	sandboxes, err := docker.NewBackend(engine, dockertest.AgentUID)
	if err != nil {
		t.Fatal(err)
	}
	return weak{s.Backend(), sandboxes}
}

// TestProofFindsWeakSandboxes takes one wall after another from the sandboxes themselves.
//
// probe: C1, C5, C7, C15, C16
// oracle: the proof, which names that wall, and the process itself, which gets through
func TestProofFindsWeakSandboxes(t *testing.T) {
	s := dockertest.New(t)
	c := checker(t, s, s.Cells(0))
	ourFilter := []string{"kernel: socket-pairs", "kernel: socket-types", "kernel: limits-pid1", "kernel: core-limit"}
	for name, test := range map[string]struct {
		change func(config, host map[string]any)
		want   []string
		more   bool // others may fail with it
	}{
		"as they are": {change: func(_, _ map[string]any) {}}, // control
		"no filter of system calls": {func(_, host map[string]any) {
			host["SecurityOpt"] = []string{"no-new-privileges", "seccomp=unconfined"}
		}, append([]string{"process: system calls are filtered", "kernel: userfaultfd"}, ourFilter...), true},
		"the engine's own filter": {func(_, host map[string]any) {
			host["SecurityOpt"] = []string{"no-new-privileges"}
		}, ourFilter, true},
		"a limit of core dumps that leaves them to the host": {func(_, host map[string]any) {
			host["Ulimits"] = []map[string]any{{"Name": "core", "Soft": 0, "Hard": 0}}
		}, []string{"kernel: core-limit"}, false},
		"a capability to be had": {func(_, host map[string]any) {
			host["CapAdd"] = []string{"NET_RAW"}
		}, []string{"process: no capabilities"}, false},
		"new privileges": {func(_, host map[string]any) {
			host["SecurityOpt"] = slices.DeleteFunc(host["SecurityOpt"].([]any), func(o any) bool { return o == "no-new-privileges" })
		}, []string{"process: no new privileges"}, false},
		"the engine's socket": {func(_, host map[string]any) {
			host["Binds"] = []string{strings.TrimPrefix(s.API.DaemonHost(), "unix://") + ":/run/docker.sock"}
		}, []string{"process: no sockets of the host", "process: nothing of the host is mounted"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := *c
			c.Backend = weaken(t, s, test.change)
			report, err := c.Check(t.Context())
			c.Background.Wait()
			if err != nil {
				t.Fatal(err)
			}
			failed := report.Failed()
			t.Logf("got through: %q", failed)
			for _, want := range test.want {
				if !slices.Contains(failed, want) {
					t.Errorf("%q held", want)
				}
			}
			if !test.more && len(failed) != len(test.want) {
				t.Errorf("got through: %q, want %q", failed, test.want)
			}
		})
	}
	nothingLeft(t, s, c)
}

func TestCheckCannotBeMade(t *testing.T) {
	s := dockertest.New(t)
	good := checker(t, s, s.Cells(0))
	for name, test := range map[string]struct {
		change func(*boundary.Checker)
		want   string
	}{
		"zero":           {func(c *boundary.Checker) { *c = boundary.Checker{} }, "are required"},
		"root":           {func(c *boundary.Checker) { c.UID = 0 }, "are required"},
		"no such image":  {func(c *boundary.Checker) { c.Image = "sallyport-test-none:none" }, "is not on the engine"},
		"no such policy": {func(c *boundary.Checker) { c.Policy = "none" }, "unknown_policy"},
		"no gate":        {func(c *boundary.Checker) { c.Gate = &control.Client{Socket: "/nonexistent/socket"} }, "/nonexistent/socket"},
		"no engine": {func(c *boundary.Checker) {
			c.Engine = func(context.Context) (string, error) { return "", errors.New("gone") }
		}, "gone"},
		"the image's entrypoint does not probe": {func(c *boundary.Checker) { c.Image = s.CellImage }, "/sallyport/entrypoint"},
	} {
		t.Run(name, func(t *testing.T) {
			c := *good
			test.change(&c)
			report, err := c.Check(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || report.Passed || report.Findings != nil {
				t.Errorf("report %+v, error %v, want one with %q", report, err, test.want)
			}
			nothingLeft(t, s, good)
		})
	}
	if report, err := good.Check(t.Context()); err != nil || !report.Passed { // positive control
		t.Errorf("report %+v, error %v", report, err)
	}
}

// TestCheckUnderAnOpenPolicy shows that the gate's own part is judged, too.
//
// probe: D1
// oracle: the proof, which fails for the gate's own part alone
func TestCheckUnderAnOpenPolicy(t *testing.T) {
	s := dockertest.New(t)
	c := checker(t, s, s.Cells(0))
	c.Policy = "open"
	report, err := c.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Passed || !slices.Contains(report.Failed(), "gate refuses unlisted names (dns)") {
		t.Errorf("got through: %q", report.Failed())
	}
}
