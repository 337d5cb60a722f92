package docker

import (
	"fmt"
	"slices"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/engine"
)

// entrypoint is PID 1 of every sandbox, whatever the image's own configuration
// says.
const entrypoint = "/sallyport/entrypoint"

// tmpInodes bounds the files on each tmpfs.
const tmpInodes = 262144

// container is the engine's configuration of a sandbox. What the image declares
// (USER, ENTRYPOINT, CMD, ENV, HEALTHCHECK, STOPSIGNAL, VOLUME) decides nothing.
func (b *Backend) container(
	spec backend.Spec, img engine.Image, files []mount.Mount,
) (*container.Config, *container.HostConfig) {
	stop := int(max(spec.Limits.StopGrace, time.Second) / time.Second)
	config := b.config(img, spec.UID, spec.GID)
	config.WorkingDir = backend.WorkspaceDir
	config.Labels = b.engine.Labels(engine.RoleSandbox, spec.Cell.ID, spec.Name)
	config.StopTimeout = &stop
	host := b.engine.Confined(spec.Limits)
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
