package docker_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker"
	"sallyport/executor/backend/docker/dockertest"
)

// secret reaches the job by the wire and must be nowhere else.
const secret = "s3cr3t-of-the-job"

func TestSandboxAsTheEngineSeesIt(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cell := acquire(t, s.Cells(0))
	spec := s.Spec(cell)
	sandbox, session := start(t, s, spec)

	out, _ := runEnv(t, session, []string{"KEY=" + secret}, "env")
	if out != "KEY="+secret+"\n" {
		t.Errorf("environment of the job: %q", out)
	}
	inspected, raw, err := s.API.ContainerInspectWithRaw(t.Context(), sandbox.ID(), false)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), secret) {
		t.Error("the container's configuration holds the secret")
	}
	for name, ok := range map[string]bool{
		"name":                 inspected.Name == "/"+s.Name+"-sandbox-"+spec.Run,
		"labels":               inspected.Config.Labels[docker.LabelRun] == spec.Run && inspected.Config.Labels[docker.LabelCell] == cell.ID,
		"user":                 inspected.Config.User == "10001:10001",
		"cap drop":             slices.Equal(inspected.HostConfig.CapDrop, []string{"ALL"}) && inspected.HostConfig.CapAdd == nil,
		"no new privileges":    slices.Contains(inspected.HostConfig.SecurityOpt, "no-new-privileges"),
		"own seccomp profile":  slices.ContainsFunc(inspected.HostConfig.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "seccomp={") }),
		"not privileged":       !inspected.HostConfig.Privileged,
		"read-only root":       inspected.HostConfig.ReadonlyRootfs,
		"no log":               inspected.HostConfig.LogConfig.Type == "none",
		"network of the cell":  inspected.HostConfig.NetworkMode == container.NetworkMode("container:"+cell.Holder),
		"private ipc":          inspected.HostConfig.IpcMode.IsPrivate(),
		"private pids":         inspected.HostConfig.PidMode == "",
		"private uts":          inspected.HostConfig.UTSMode == "",
		"memory without swap":  inspected.HostConfig.Memory == spec.Limits.MemoryBytes && inspected.HostConfig.MemorySwap == spec.Limits.MemoryBytes,
		"killed out of memory": inspected.HostConfig.OomKillDisable == nil || !*inspected.HostConfig.OomKillDisable,
		"processes":            *inspected.HostConfig.PidsLimit == spec.Limits.PIDs,
		"cpus":                 inspected.HostConfig.NanoCPUs == 1e9,
		"no restart":           inspected.HostConfig.RestartPolicy.Name == "no",
		"no devices":           len(inspected.HostConfig.Devices) == 0,
	} {
		if !ok {
			t.Errorf("%s: not as it should be", name)
		}
	}
	var sources []string
	for _, m := range inspected.Mounts {
		sources = append(sources, m.Source)
	}
	slices.Sort(sources)
	own := filepath.Join(s.State, "cells", cell.ID)
	if want := []string{filepath.Join(own, "hosts"), filepath.Join(own, "resolv.conf"), spec.Workspace}; !sameSet(sources, want) {
		t.Errorf("mounts of the host %q, want %q", sources, want)
	}
	// The host can look into PID 1: nothing there either.
	if environ, err := os.ReadFile("/proc/" + strconv.Itoa(inspected.State.Pid) + "/environ"); err == nil {
		if v := strings.TrimRight(string(environ), "\x00"); strings.Contains(v, secret) || strings.Count(v, "\x00") > 2 {
			t.Errorf("environment of PID 1: %q", v)
		}
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func TestSandboxAsTheAgentSeesIt(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cell := acquire(t, s.Cells(0))
	_, session := start(t, s, s.Spec(cell))

	status, _ := run(t, session, "cat", "/proc/self/status")
	for _, want := range []string{
		"Uid:\t10001\t10001\t10001\t10001\n", "Gid:\t10001\t10001\t10001\t10001\n",
		"CapInh:\t0000000000000000\n", "CapPrm:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
		"CapBnd:\t0000000000000000\n", "CapAmb:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q", want)
		}
	}
	resolv, _ := run(t, session, "cat", "/etc/resolv.conf")
	if want := "nameserver " + cell.Gate.String() + "\noptions edns0 timeout:2 attempts:2\n"; resolv != want {
		t.Errorf("resolv.conf %q, want %q", resolv, want)
	}
	if hosts, _ := run(t, session, "cat", "/etc/hosts"); !strings.Contains(hosts, cell.Sandbox.String()+"\tsandbox\n") {
		t.Errorf("hosts %q", hosts)
	}
	if name, _ := run(t, session, "cat", "/proc/sys/kernel/hostname"); name != "sandbox\n" {
		t.Errorf("host name %q", name)
	}
	for _, file := range []string{"/proc/kcore", "/proc/kallsyms", "/proc/keys", "/sys/firmware/acpi/tables/DSDT", "/proc/1/mem", "/proc/1/environ"} {
		if content, exit := run(t, session, "cat", file); exit.Code == 0 && content != "" {
			t.Errorf("%s can be read: %.40q", file, content)
		}
	}
	for _, socket := range []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock"} {
		if out, exit := run(t, session, "cat", socket); exit.Code == 0 || !strings.Contains(out, "no such file") {
			t.Errorf("%s: %s", socket, out)
		}
	}
	// Positive control of the reads above, and where it may write.
	for _, dir := range []string{"/tmp", backend.HomeDir, backend.WorkspaceDir, "/run/sallyport", "/dev/shm"} {
		if dir == backend.WorkspaceDir {
			continue // bounded by the executor, not here
		}
		out, _ := run(t, session, "fill", dir)
		n, _, _ := strings.Cut(out, " ")
		if written, err := strconv.ParseInt(n, 10, 64); err != nil || written < 1<<20 || written > 16<<20 {
			t.Errorf("%s takes %s, want up to 16 MiB", dir, strings.TrimSpace(out))
		}
	}
	for _, dir := range []string{"/", "/etc", "/sallyport", "/proc/sys/net/ipv4", "/sys/fs/cgroup"} {
		if out, exit := run(t, session, "fill", dir); exit.Code == 0 {
			t.Errorf("%s can be written: %s", dir, out)
		}
	}
}

// TestImageDecidesNothing starts an image that declares everything it could.
func TestImageDecidesNothing(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	spec := s.Spec(acquire(t, s.Cells(0)))
	spec.Image = s.Image("USER root", `ENTRYPOINT ["/tool", "sleep"]`, `CMD ["fill", "/"]`, "ENV IMAGE=says PATH=/evil LD_PRELOAD=/x",
		"VOLUME /data /tmp", `HEALTHCHECK --interval=1s CMD ["/tool", "fill", "/"]`, "WORKDIR /data",
		"EXPOSE 80", "LABEL "+docker.LabelStack+"=other")
	sandbox, session := start(t, s, spec)
	inspected, err := s.API.ContainerInspect(t.Context(), sandbox.ID())
	if err != nil {
		t.Fatal(err)
	}
	config := inspected.Config
	if config.User != "10001:10001" || !slices.Equal(config.Entrypoint, []string{"/sallyport/entrypoint"}) || len(config.Cmd) != 0 ||
		!slices.Equal(config.Healthcheck.Test, []string{"NONE"}) || config.WorkingDir != backend.WorkspaceDir ||
		config.StopSignal != "SIGTERM" || config.Labels[docker.LabelStack] != s.Name {
		t.Errorf("the image got its way: %+v", config)
	}
	for _, m := range inspected.Mounts {
		if m.Type == "volume" {
			t.Errorf("a volume of the image is mounted at %s", m.Destination)
		}
	}
	if out, _ := run(t, session, "fill", "/data"); !strings.HasPrefix(out, strconv.Itoa(16<<20)+" ") {
		t.Errorf("the image's volume takes %s, want 16 MiB", out)
	}
	if environ, err := os.ReadFile("/proc/" + strconv.Itoa(inspected.State.Pid) + "/environ"); err == nil {
		for v := range strings.SplitSeq(strings.TrimRight(string(environ), "\x00"), "\x00") {
			name, value, _ := strings.Cut(v, "=")
			if name == "IMAGE" || name == "LD_PRELOAD" || value == "/evil" {
				t.Errorf("PID 1 has %s of the image", v)
			}
		}
	}
}

func TestOtherUser(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	spec := s.Spec(acquire(t, s.Cells(0)))
	spec.UID, spec.GID = 12345, 23456
	_, session := start(t, s, spec)
	if out, _ := run(t, session, "cat", "/etc/passwd"); !strings.Contains(out, "agent:x:12345:23456::/home/agent:") {
		t.Errorf("passwd %q", out)
	}
	if out, _ := run(t, session, "cat", "/etc/group"); !strings.Contains(out, "agent:x:23456:\n") {
		t.Errorf("group %q", out)
	}
	if out, exit := run(t, session, "fill", backend.HomeDir); exit.Code != 0 {
		t.Errorf("home: %s", out)
	}
}

func TestSystemCalls(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	_, session := start(t, s, s.Spec(acquire(t, s.Cells(0))))
	out, _ := run(t, session, "calls")
	var got map[string]string
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	allowed := []string{"udp", "tcp", "udp6", "unix", "netlink route", "keepalive", "reuseport", "zerocopy", "ip tos", "ptrace", "clear the refusal"}
	for name, errno := range got {
		want := "EPERM"
		switch {
		case slices.Contains(allowed, name):
			want = ""
		case name == "clone3":
			want = "ENOSYS" // so that libraries fall back to clone
		case name == "send":
			continue // refused by nobody listening, or not yet
		}
		if errno != want && !(name == "clear the refusal" && errno == "ECONNREFUSED") {
			t.Errorf("%s: %q, want %q", name, errno, want)
		}
	}
	if len(got) < 35 {
		t.Errorf("only %d calls were tried", len(got))
	}
}

func TestMemoryBomb(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	sandbox, session := start(t, s, s.Spec(acquire(t, s.Cells(0))))
	if oom, err := sandbox.OOMKilled(t.Context()); err != nil || oom {
		t.Fatalf("before: %v, %v", oom, err)
	}
	_, exit := run(t, session, "memory")
	if exit.Signal != "KILL" {
		t.Errorf("exit %+v, want KILL", exit)
	}
	if oom, err := sandbox.OOMKilled(t.Context()); err != nil || !oom {
		t.Errorf("out of memory: %v, %v", oom, err)
	}
	if out, _ := run(t, session, "cat", "/etc/hosts"); out == "" {
		t.Error("the sandbox does not live on")
	}
}

func TestProcessBomb(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	spec := s.Spec(acquire(t, s.Cells(0)))
	_, session := start(t, s, spec)
	out, _ := run(t, session, "processes")
	if n, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || n < 1 || int64(n) > spec.Limits.PIDs {
		t.Errorf("%q processes, want 1 to %d", out, spec.Limits.PIDs)
	}
	if out, _ := run(t, session, "cat", "/etc/hosts"); out == "" {
		t.Error("the sandbox does not live on")
	}
}

func TestWaitAndRemove(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cell := acquire(t, s.Cells(0))
	sandbox, session := start(t, s, s.Spec(cell))
	session.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if exit, err := sandbox.Wait(ctx); err != nil || exit.Code != 0 || exit.OOMKilled {
		t.Errorf("after the end of standard input: %+v, %v", exit, err)
	}
	if err := sandbox.Remove(ctx); err != nil {
		t.Error(err)
	}

	sandbox, _ = start(t, s, s.Spec(cell))
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := sandbox.Remove(ended); err != nil { // of a running one, by a caller whose time is over
		t.Error(err)
	}
	if err := sandbox.Remove(ended); err != nil {
		t.Error("again:", err)
	}
	if left := s.Containers(docker.RoleSandbox); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := sandbox.Wait(ctx); err == nil {
		t.Error("the end of a removed sandbox is known")
	}
}

func TestExecutorDies(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	sandbox, session := start(t, s, s.Spec(acquire(t, s.Cells(0))))
	_ = session
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	// The end of the connection is all that the engine sees of a killed executor.
	docker.Disconnect(sandbox)
	if exit, err := sandbox.Wait(ctx); err != nil {
		t.Errorf("%+v, %v", exit, err)
	}
}

// TestGivenUpStart gives up at every stage: nothing may be left of it.
func TestGivenUpStart(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cells := s.Cells(0)
	cell := acquire(t, cells)
	b := s.Backend()
	for patience := time.Duration(0); patience < 200*time.Millisecond; patience += 10 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if sandbox, err := b.Start(ctx, s.Spec(cell)); err == nil {
			sandbox.Remove(ctx)
		}
		if another, err := cells.Acquire(ctx); err == nil {
			cells.Discard(another)
		}
		cancel()
	}
	if left := s.Containers(docker.RoleSandbox); len(left) != 0 {
		t.Errorf("sandboxes left: %v", left)
	}
	if err := cells.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if left := s.Containers(docker.RoleCell); len(left) != 0 {
		t.Errorf("keepers left: %v", left)
	}
	if left := s.Networks(); len(left) != 0 {
		t.Errorf("networks left: %v", left)
	}
}

func TestStartRefuses(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	cell := acquire(t, s.Cells(0))
	b := s.Backend()
	for name, test := range map[string]struct {
		change func(*backend.Spec)
		want   string
	}{
		"root":                {func(s *backend.Spec) { s.UID = 0 }, "never runs as root"},
		"root group":          {func(s *backend.Spec) { s.GID = 0 }, "never runs as root"},
		"negative user":       {func(s *backend.Spec) { s.UID = -1 }, "never runs as root"},
		"zero":                {func(s *backend.Spec) { *s = backend.Spec{} }, "is not an identifier"},
		"run is a path":       {func(s *backend.Spec) { s.Run = "../x" }, "is not an identifier"},
		"cell is a path":      {func(s *backend.Spec) { s.Cell.ID = "../x" }, "no cell"},
		"no cell":             {func(s *backend.Spec) { s.Cell = backend.Cell{} }, "no cell"},
		"no limits":           {func(s *backend.Spec) { s.Limits = backend.Limits{} }, "all are required"},
		"no memory limit":     {func(s *backend.Spec) { s.Limits.MemoryBytes = 0 }, "all are required"},
		"workspace is root":   {func(s *backend.Spec) { s.Workspace = "/tmp/.." }, "workspace"},
		"relative workspace":  {func(s *backend.Spec) { s.Workspace = "x" }, "workspace"},
		"missing workspace":   {func(s *backend.Spec) { s.Workspace += "/no" }, "bind source path does not exist"},
		"missing image":       {func(s *backend.Spec) { s.Image = "sallyport-test-none:none" }, "is not on the engine"},
		"no entrypoint in it": {func(s2 *backend.Spec) { s2.Image = s.CellImage }, "/sallyport/entrypoint"},
		"no such holder":      {func(s *backend.Spec) { s.Cell.Holder = "sallyport-test-none" }, "sallyport-test-none"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := s.Spec(cell)
			test.change(&spec)
			sandbox, err := b.Start(t.Context(), spec)
			if err == nil {
				sandbox.Remove(t.Context())
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want one with %q", err, test.want)
			}
			if left := s.Containers(docker.RoleSandbox); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
	start(t, s, s.Spec(cell)) // positive control
}
