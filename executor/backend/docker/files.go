package docker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/docker/docker/api/types/mount"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/engine"
)

// files writes what a sandbox is given in place of the engine's own files and
// returns the mounts. The engine's resolv.conf would name its embedded resolver.
func (b *Backend) files(spec backend.Spec) ([]mount.Mount, error) {
	dir := b.engine.CellDir(spec.Cell.ID)
	contents := map[string]string{
		"resolv.conf": fmt.Sprintf("nameserver %s\noptions edns0 timeout:2 attempts:2\n", spec.Cell.Gate),
		"hosts":       fmt.Sprintf("127.0.0.1\tlocalhost\n::1\tlocalhost\n%s\t%s\n", spec.Cell.Sandbox, engine.Hostname),
	}
	if spec.UID != b.imageUID {
		contents["passwd"] = fmt.Sprintf("root:x:0:0:root:/:/usr/sbin/nologin\n"+
			"nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"+
			"agent:x:%d:%d::%s:/bin/sh\n", spec.UID, spec.GID, backend.HomeDir)
		contents["group"] = fmt.Sprintf("root:x:0:\nnogroup:x:65534:\nagent:x:%d:\n", spec.GID)
	}
	var mounts []mount.Mount
	for name, content := range contents {
		file := filepath.Join(dir, name)
		if err := place(file, []byte(content)); err != nil {
			return nil, fmt.Errorf("docker: files of cell %s: %w", spec.Cell.ID, err)
		}
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeBind, Source: file, Target: "/etc/" + name, ReadOnly: true,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		})
	}
	return mounts, nil
}

// place makes a file hold content, readable by all. It replaces the file rather
// than writing into one that a sandbox may still have mounted.
func place(file string, content []byte) error {
	if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name()) // fails once it has its name
	_, err = temporary.Write(content)
	if err == nil {
		err = temporary.Chmod(0o644)
	}
	if closed := temporary.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}
