package docker_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/dockertest"
	"sallyport/executor/backend/docker/engine"
)

// secret reaches the job by the wire and must be nowhere else.
const secret = "s3cr3t-of-the-job"

// probe: C1, C11
// oracle: the engine's own description of the container
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
	inspected, raw, err := s.API.ContainerInspectWithRaw(t.Context(), sandbox.ID, false)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), secret) {
		t.Error("the container's configuration holds the secret")
	}
	for name, ok := range map[string]bool{
		"name":                 inspected.Name == "/"+s.Name+"-sandbox-"+spec.Name,
		"image":                inspected.Image == sandbox.ImageDigest && strings.HasPrefix(sandbox.ImageDigest, "sha256:"),
		"labels":               inspected.Config.Labels[engine.LabelRun] == spec.Name && inspected.Config.Labels[engine.LabelCell] == cell.ID,
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

// TestSandboxAsTheAgentSeesIt looks around in a sandbox.
//
// probe: C1, C6, C7, C9, N10
// oracle: the kernel's status of the process, and what can be read and written; scratch
// directories take what they should
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
//
// probe: C12
// oracle: the engine's description of the container, and the environment of its first
// process
func TestImageDecidesNothing(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	spec := s.Spec(acquire(t, s.Cells(0)))
	spec.Image = s.Image("USER root", `ENTRYPOINT ["/tool", "sleep"]`, `CMD ["fill", "/"]`, "ENV IMAGE=says PATH=/evil LD_PRELOAD=/x",
		"VOLUME /data /tmp", `HEALTHCHECK --interval=1s CMD ["/tool", "fill", "/"]`, "WORKDIR /data",
		"EXPOSE 80", "LABEL "+engine.LabelStack+"=other")
	sandbox, session := start(t, s, spec)
	inspected, err := s.API.ContainerInspect(t.Context(), sandbox.ID)
	if err != nil {
		t.Fatal(err)
	}
	config := inspected.Config
	if config.User != "10001:10001" || !slices.Equal(config.Entrypoint, []string{"/sallyport/entrypoint"}) || len(config.Cmd) != 0 ||
		!slices.Equal(config.Healthcheck.Test, []string{"NONE"}) || config.WorkingDir != backend.WorkspaceDir ||
		config.StopSignal != "SIGTERM" || config.Labels[engine.LabelStack] != s.Name {
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

// TestSystemCalls makes calls that exploits like.
//
// probe: C3, C4, C5, C15, C16
// oracle: the kernel's answer to each call; ordinary ones pass
func TestSystemCalls(t *testing.T) {
	s := dockertest.New(t)
	s.EchoGate()
	_, session := start(t, s, s.Spec(acquire(t, s.Cells(0))))
	out, _ := run(t, session, "calls")
	var got map[string]string
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	allowed := []string{"udp", "tcp", "udp6", "unix", "netlink route", "keepalive", "reuseport", "zerocopy", "ip tos", "ptrace", "clear the refusal",
		"tcp, upper bit in type", "unix seqpacket", "unix pair", "look at a limit of pid 1", "set a limit of its own",
		"leave no core", "leave no core, setrlimit", "look at the limit of cores"}
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
	if len(got) < 50 {
		t.Errorf("only %d calls were tried", len(got))
	}
}
