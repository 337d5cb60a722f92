package dockertest

import (
	"context"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker"
	"sallyport/executor/backend/docker/cells"
	"sallyport/executor/backend/docker/engine"
)

// Pool is where the cells of tests get their subnets: apart from the default pool
// of a real stack on the same engine.
var Pool = netip.MustParsePrefix("198.19.128.0/17")

// A Stack is a test's own stack. It is gone when the test ends.
type Stack struct {
	Name  string
	State string // directory
	// AgentImage and CellImage are the images of sandboxes and of gate and keeper.
	AgentImage, CellImage string
	Engine                *engine.Engine
	API                   *client.Client

	t testing.TB
}

// New makes a stack without a gate.
func New(t testing.TB) *Stack {
	t.Helper()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	s := &Stack{
		Name: "test-" + random(), State: t.TempDir(), API: api, t: t,
		AgentImage: images.agent, CellImage: images.cell,
	}
	s.Engine, err = engine.Open(t.Context(), engine.Config{Stack: s.Name, State: s.State, Log: Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.remove)
	return s
}

// Log is a logger that writes to a test's own output.
func Log(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// remove removes all that bears the stack's label.
func (s *Stack) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := s.Engine.Sweep(ctx); err != nil {
		s.t.Error("sweep:", err)
	}
	for _, c := range s.Containers("") {
		if err := s.API.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}); err != nil {
			s.t.Error("remove container:", err)
		}
	}
	for _, n := range s.Networks() {
		if err := s.API.NetworkRemove(ctx, n.ID); err != nil {
			s.t.Error("remove network:", err)
		}
	}
	s.Engine.Close()
	s.API.Close()
}

// Containers are the stack's, in any state; an empty role means all.
func (s *Stack) Containers(role string) []container.Summary {
	s.t.Helper()
	f := filters.NewArgs(filters.Arg("label", engine.LabelStack+"="+s.Name))
	if role != "" {
		f.Add("label", engine.LabelRole+"="+role)
	}
	found, err := s.API.ContainerList(context.Background(), container.ListOptions{All: true, Filters: f})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// Networks are the stack's.
func (s *Stack) Networks() []network.Summary {
	s.t.Helper()
	found, err := s.API.NetworkList(context.Background(), network.ListOptions{
		Filters: filters.NewArgs(filters.Arg("label", engine.LabelStack+"="+s.Name)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// Labels are those of one of the stack's objects.
func (s *Stack) Labels(role string) map[string]string {
	return map[string]string{engine.LabelStack: s.Name, engine.LabelRole: role}
}

// Run starts a container of one of the stack's images and returns its ID. It waits
// for the first line of its output if there is a word to wait for.
func (s *Stack) Run(config container.Config, host container.HostConfig, word string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	created, err := s.API.ContainerCreate(ctx, &config, &host, nil, nil, "")
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.API.ContainerStart(ctx, created.ID, container.StartOptions{}); err != nil {
		s.t.Fatal(err)
	}
	if word == "" {
		return created.ID
	}
	logs, err := s.API.ContainerLogs(ctx, created.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		s.t.Fatal(err)
	}
	defer logs.Close()
	var seen strings.Builder
	b := make([]byte, 512)
	for !strings.Contains(seen.String(), word) {
		n, err := logs.Read(b)
		seen.Write(b[:n])
		if err != nil {
			s.t.Fatalf("container said %q, want %q: %v", seen.String(), word, err)
		}
	}
	return created.ID
}

// EchoGate starts a container with the gate's labels that answers on the gate's
// ports, on every address, with what it is sent: a gate without judgement, for
// tests of what surrounds it.
func (s *Stack) EchoGate() string {
	s.t.Helper()
	return s.Run(container.Config{
		Image: s.CellImage, Entrypoint: []string{"/tool", "serve"}, Labels: s.Labels(engine.RoleGate),
	}, container.HostConfig{}, "serving")
}

// Gate starts a real gate with an allowlist and returns the path of its control
// socket.
func (s *Stack) Gate(allowlist string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { // the gate is another user
		s.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "allowlist.yaml"), []byte(allowlist), 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.Run(container.Config{
		Image: s.CellImage, Entrypoint: []string{"/gate"}, User: "65532:65532", Labels: s.Labels(engine.RoleGate),
		Env: []string{"SALLYPORT_ALLOWLIST=/gate.d/allowlist.yaml", "SALLYPORT_CONTROL_SOCKET=/gate.d/control.sock"},
	}, container.HostConfig{
		CapDrop: []string{"ALL"}, ReadonlyRootfs: true,
		Sysctls: map[string]string{"net.ipv4.ip_forward": "0", "net.ipv4.ip_unprivileged_port_start": "0"},
		Mounts:  []mount.Mount{{Type: mount.TypeBind, Source: dir, Target: "/gate.d"}},
	}, "")
	return filepath.Join(dir, "control.sock")
}

// Cells makes a source of cells that is closed when the test ends.
func (s *Stack) Cells(ahead int) *cells.Pool {
	s.t.Helper()
	pool, err := cells.NewPool(s.Engine, cells.Config{Image: s.CellImage, Subnets: Pool, Ahead: ahead})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := pool.Close(context.Background()); err != nil {
			s.t.Error("close cells:", err)
		}
	})
	return pool
}

// Backend is the backend under test.
func (s *Stack) Backend() *docker.Backend {
	s.t.Helper()
	b, err := docker.NewBackend(s.Engine, AgentUID)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// Spec is a small sandbox in a cell, with a workspace of its own.
func (s *Stack) Spec(cell backend.Cell) backend.Spec {
	s.t.Helper()
	workspace := s.t.TempDir()
	if err := os.Chmod(workspace, 0o777); err != nil { // whoever runs the tests
		s.t.Fatal(err)
	}
	return backend.Spec{
		Name: "run-" + random(), Image: s.AgentImage, UID: AgentUID, GID: AgentUID,
		Workspace: workspace, Attachment: backend.ByCell, Cell: cell, Limits: Limits(),
	}
}

// Limits are those of a small sandbox.
func Limits() backend.Limits {
	return backend.Limits{
		MemoryBytes: 128 << 20, PIDs: 64, CPUs: 1, TmpBytes: 16 << 20, NoFile: 256,
		StopGrace: time.Second, ShmSizeBytes: 4 << 20,
	}
}

// Image makes an image like the small agent image with Dockerfile instructions on
// top, and returns its name. It is removed when the test ends.
func (s *Stack) Image(instructions ...string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	root, err := rootTar(s.t.Context(), dir, map[string]string{"sallyport/entrypoint": "sallyport/cmd/entrypoint", "tool": tool}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	name := "sallyport-test-" + random() + ":image"
	if err := importImage(s.t.Context(), s.API, root, name, instructions...); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if _, err := s.API.ImageRemove(context.Background(), name, image.RemoveOptions{Force: true}); err != nil {
			s.t.Error(err)
		}
	})
	return name
}
