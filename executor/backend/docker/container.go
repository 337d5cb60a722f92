package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	imagetypes "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/go-units"

	"sallyport/executor/backend"
)

// entrypoint is PID 1 of every sandbox, whatever the image's own configuration
// says.
const entrypoint = "/sallyport/entrypoint"

// path is the only variable in the environment of PID 1; a job brings its own.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// tmpInodes bounds the files on each tmpfs.
const tmpInodes = 262144

// maskedPaths hide what the kernel says of the whole machine. Giving the engine a
// list replaces its own, so its (and those of newer engines) are repeated here.
var maskedPaths = []string{
	"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
	"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
	"/sys/devices/virtual/powercap", "/sys/firmware",
	// Ours: addresses and shape of the host's kernel, its hardware's serial numbers, its traces.
	"/proc/config.gz", "/proc/kallsyms", "/proc/kmsg", "/proc/kpagecgroup", "/proc/kpagecount",
	"/proc/kpageflags", "/proc/modules", "/proc/sysrq-trigger", "/proc/vmallocinfo",
	"/sys/devices/virtual/dmi", "/sys/fs/bpf", "/sys/fs/pstore", "/sys/kernel/debug",
	"/sys/kernel/security", "/sys/kernel/tracing",
}

var readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"}

// An image is what the engine knows of one; it has a configuration.
type image = imagetypes.InspectResponse

// image inspects an image that must be on the engine already.
func (e *Engine) image(ctx context.Context, ref string) (image, error) {
	inspected, err := e.api.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		return inspected, fmt.Errorf("docker: image %s is not on the engine", ref)
	}
	if err != nil {
		return inspected, fmt.Errorf("docker: inspect image %s: %w", ref, err)
	}
	if inspected.Config == nil {
		return inspected, fmt.Errorf("docker: image %s has no configuration", ref)
	}
	return inspected, nil
}

// container is the engine's configuration of a sandbox. What the image declares
// (USER, ENTRYPOINT, CMD, ENV, HEALTHCHECK, STOPSIGNAL, VOLUME) decides nothing.
func (b *Backend) container(
	spec backend.Spec, img image, files []mount.Mount,
) (*container.Config, *container.HostConfig) {
	stop := int(max(spec.Limits.StopGrace, time.Second) / time.Second)
	config := b.config(img, spec.UID, spec.GID)
	config.WorkingDir = backend.WorkspaceDir
	config.Labels = b.engine.labels(RoleSandbox, spec.Cell.ID, spec.Name)
	config.StopTimeout = &stop
	host := b.engine.confined(spec.Limits)
	host.NetworkMode = container.NetworkMode("container:" + spec.Cell.Holder)
	host.SecurityOpt = []string{"no-new-privileges", "seccomp=" + b.seccomp}
	host.Tmpfs = tmpfs(spec)
	for volume := range img.Config.Volumes {
		// An image's VOLUME would be an unbounded directory on the host's disk.
		if _, ok := host.Tmpfs[volume]; !ok && volume != backend.WorkspaceDir {
			host.Tmpfs[volume] = tmpfsOptions(spec.Limits.TmpBytes, "mode=1777")
		}
	}
	host.Mounts = append(slices.Clone(files), mount.Mount{
		Type: mount.TypeBind, Source: spec.Workspace, Target: backend.WorkspaceDir,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate, NonRecursive: true},
	})
	return config, host
}

// confined is the part of a host configuration that every container of an
// untrusted program shares: no capability, nothing writable, no log, its limits.
func (e *Engine) confined(l backend.Limits) *container.HostConfig {
	no := false
	host := &container.HostConfig{
		IpcMode:        container.IPCModePrivate,
		CgroupnsMode:   container.CgroupnsModePrivate,
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges"},
		ReadonlyRootfs: true,
		MaskedPaths:    maskedPaths,
		ReadonlyPaths:  readonlyPaths,
		LogConfig:      container.LogConfig{Type: "none"},
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Init:           &no,
		ShmSize:        l.ShmSizeBytes,
		// When the host itself runs out of memory, sandboxes go before it does.
		OomScoreAdj: 500,
		Resources: container.Resources{
			Memory:         l.MemoryBytes,
			MemorySwap:     l.MemoryBytes, // memory and swap together: no swap
			OomKillDisable: &no,
			PidsLimit:      &l.PIDs,
			NanoCPUs:       int64(l.CPUs * 1e9),
			Ulimits: []*units.Ulimit{
				{Name: "nofile", Soft: l.NoFile, Hard: l.NoFile},
				{Name: "core", Soft: 1, Hard: 1}, // none, and none for a handler on the host either; see limitRules
			},
		},
	}
	if e.info.CgroupVersion == "1" { // cgroup v2 knows no swappiness
		zero := int64(0)
		host.MemorySwappiness = &zero
	}
	return host
}

// tmpfs are the writable places of a sandbox beside its workspace.
func tmpfs(spec backend.Spec) map[string]string {
	own := fmt.Sprintf("uid=%d,gid=%d,mode=0700", spec.UID, spec.GID)
	return map[string]string{
		"/tmp":           tmpfsOptions(spec.Limits.TmpBytes, "mode=1777"),
		backend.HomeDir:  tmpfsOptions(spec.Limits.TmpBytes, own),
		"/run/sallyport": tmpfsOptions(min(spec.Limits.TmpBytes, 64<<20), own),
	}
}

func tmpfsOptions(size int64, owner string) string {
	return fmt.Sprintf("rw,exec,nosuid,nodev,size=%d,nr_inodes=%d,%s", size, tmpInodes, owner)
}

// environment takes from PID 1 whatever the image would give it but PATH: to the
// engine a name without a value means that the variable is absent.
func environment(images []string) []string {
	env := []string{path}
	for _, v := range images {
		if name, _, _ := strings.Cut(v, "="); name != "PATH" && name != "" {
			env = append(env, name)
		}
	}
	return env
}
