package engine

import (
	"context"
	"fmt"
	"sallyport/executor/backend"
	"strings"

	imagetypes "github.com/docker/docker/api/types/image"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-units"
)

// path is the only variable in the environment of PID 1; a job brings its own.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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

// An Image is what the engine knows of one; it has a configuration.
type Image = imagetypes.InspectResponse

// Image inspects an image that must be on the engine already.
func (e *Engine) Image(ctx context.Context, ref string) (Image, error) {
	inspected, err := e.API.ImageInspect(ctx, ref)
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

// Confined is the part of a host configuration that every container of an
// untrusted program shares: no capability, nothing writable, no log, its limits.
func (e *Engine) Confined(l backend.Limits) *container.HostConfig {
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
				{Name: "core", Soft: 1, Hard: 1}, // none, and none for a handler on the host either; see package docker, limitRules
			},
		},
	}
	if e.info.CgroupVersion == "1" { // cgroup v2 knows no swappiness
		zero := int64(0)
		host.MemorySwappiness = &zero
	}
	return host
}

// Environment takes from PID 1 whatever the image would give it but PATH: to the
// engine a name without a value means that the variable is absent.
func Environment(images []string) []string {
	env := []string{path}
	for _, v := range images {
		if name, _, _ := strings.Cut(v, "="); name != "PATH" && name != "" {
			env = append(env, name)
		}
	}
	return env
}
