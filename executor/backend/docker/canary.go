package docker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/engine"
)

// onHostLimits suffice for a listener.
var onHostLimits = backend.Limits{
	MemoryBytes: 128 << 20, PIDs: 64, CPUs: 1, TmpBytes: 1 << 20, NoFile: 1024, ShmSizeBytes: 64 << 10,
	StopGrace: time.Second,
}

// StartOnHost starts a canary. Its two streams are the program's own. Beside
// the network it shares nothing of the host: it is as confined as a sandbox and
// has no workspace.
func (b *Backend) StartOnHost(ctx context.Context, o backend.OnHost) (*backend.Sandbox, error) {
	switch {
	case !engine.ValidName.MatchString(o.Name):
		return nil, fmt.Errorf("docker: canary: run %q is not an identifier", o.Name)
	case o.UID <= 0 || o.GID <= 0:
		return nil, fmt.Errorf("docker: canary: user %d:%d: never root", o.UID, o.GID)
	case len(o.Args) == 0:
		return nil, errors.New("docker: canary: no command")
	}
	img, err := b.engine.Image(ctx, o.Image)
	if err != nil {
		return nil, err
	}
	config := b.config(img, o.UID, o.GID)
	config.Entrypoint = append(config.Entrypoint, o.Args...)
	config.WorkingDir = "/"
	config.Labels = b.engine.Labels(engine.RoleCanary, "", o.Name)
	host := b.engine.Confined(onHostLimits)
	host.NetworkMode = "host"
	host.SecurityOpt = []string{"no-new-privileges", "seccomp=" + b.seccomp}
	host.Tmpfs = map[string]string{}
	for volume := range img.Config.Volumes {
		host.Tmpfs[volume] = tmpfsOptions(onHostLimits.TmpBytes, "mode=1777")
	}
	s, err := b.engine.Launch(ctx, b.engine.Stack+"-canary-"+o.Name, config, host)
	if err != nil {
		return nil, err
	}
	return s.Sandbox(), nil
}

// config is the part of a container's configuration that sandboxes and canaries
// share.
func (b *Backend) config(img engine.Image, uid, gid int) *container.Config {
	return &container.Config{
		Image:       img.ID, // the image that was inspected, should the tag move
		User:        strconv.Itoa(uid) + ":" + strconv.Itoa(gid),
		Entrypoint:  []string{entrypoint},
		Env:         engine.Environment(img.Config.Env),
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		AttachStdin: true, AttachStdout: true, AttachStderr: true, OpenStdin: true,
		// When the executor is gone, its end of the wire is closed, and PID 1 ends.
		StdinOnce:  true,
		StopSignal: "SIGTERM",
	}
}
