// Package dockertest gives tests a stack of their own on a real Docker engine:
// small images made from this module's programs, a gate, and the certainty that
// nothing is left behind. A package whose tests use it says
//
//	func TestMain(m *testing.M) { dockertest.Main(m) }
package dockertest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// AgentUID is the user of sandboxes in tests; the small agent image knows it.
const AgentUID = 10001

// images are those of this process, set by Main.
var images struct{ agent, cell string }

// Main makes the images, runs the tests and removes the images. They are made from
// nothing unless the environment names others to build on: SALLYPORT_AGENT_IMAGE
// and SALLYPORT_CELL_IMAGE, such as sallyport/agent:dev and sallyport/gate:dev.
func Main(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	api, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		fmt.Fprintln(os.Stderr, "dockertest:", err)
		return 1
	}
	defer api.Close()
	remove, err := makeImages(ctx, api)
	defer remove()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dockertest:", err)
		return 1
	}
	return m.Run()
}

// makeImages makes the images. What it returns removes those it made.
func makeImages(ctx context.Context, api *client.Client) (remove func(), err error) {
	var made []string
	remove = func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, name := range made {
			if _, err := api.ImageRemove(ctx, name, image.RemoveOptions{Force: true, PruneChildren: true}); err != nil {
				fmt.Fprintln(os.Stderr, "dockertest: remove image:", err)
			}
		}
	}
	dir, err := os.MkdirTemp("", "sallyport-dockertest-*")
	if err != nil {
		return remove, err
	}
	defer os.RemoveAll(dir)
	prefix := "sallyport-test-" + random() + ":"
	for _, wanted := range []struct {
		name     string
		variable string
		image    *string
		programs map[string]string // path in the image: package
		files    map[string]string
	}{
		{"agent", "SALLYPORT_AGENT_IMAGE", &images.agent,
			map[string]string{"sallyport/entrypoint": "sallyport/cmd/entrypoint", "tool": tool},
			map[string]string{
				"etc/passwd": fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nagent:x:%d:%[1]d::/home/agent:/tool\n", AgentUID),
				"etc/group":  fmt.Sprintf("root:x:0:\nagent:x:%d:\n", AgentUID),
			}},
		{"cell", "SALLYPORT_CELL_IMAGE", &images.cell,
			map[string]string{"cell": "sallyport/cmd/cell", "gate": "sallyport/cmd/gate", "tool": tool}, nil},
	} {
		*wanted.image = prefix + wanted.name
		if base := os.Getenv(wanted.variable); base != "" {
			err = buildImage(ctx, api, dir, base, *wanted.image)
		} else {
			var root io.Reader
			if root, err = rootTar(ctx, dir, wanted.programs, wanted.files); err == nil {
				err = importImage(ctx, api, root, *wanted.image)
			}
		}
		if err != nil {
			return remove, err
		}
		made = append(made, *wanted.image)
	}
	return remove, nil
}

// tool is the package of the tests' agent program.
const tool = "sallyport/executor/backend/docker/dockertest/testdata/tool"

// rootTar is the file system of an image.
func rootTar(ctx context.Context, dir string, programs, files map[string]string) (io.Reader, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, mode int64, content []byte) error {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	for name, pkg := range programs {
		program := filepath.Join(dir, filepath.Base(name))
		build := exec.CommandContext(ctx, "go", "build", "-o", program, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s: %w: %s", pkg, err, out)
		}
		content, err := os.ReadFile(program)
		if err != nil {
			return nil, err
		}
		if err := add(name, 0o755, content); err != nil {
			return nil, err
		}
	}
	for name, content := range files {
		if err := add(name, 0o644, []byte(content)); err != nil {
			return nil, err
		}
	}
	return &b, w.Close()
}

// importImage makes an image of one layer; changes are Dockerfile instructions.
func importImage(ctx context.Context, api *client.Client, root io.Reader, name string, changes ...string) error {
	answer, err := api.ImageImport(ctx, image.ImportSource{Source: root, SourceName: "-"}, name, image.ImportOptions{Changes: changes})
	if err != nil {
		return fmt.Errorf("import image %s: %w", name, err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		return fmt.Errorf("import image %s: %w", name, err)
	}
	return nil
}

// buildImage makes an image that adds the tests' program to another one.
func buildImage(ctx context.Context, api *client.Client, dir, base, name string) error {
	root, err := rootTar(ctx, dir, map[string]string{"tool": tool},
		map[string]string{"Dockerfile": "FROM " + base + "\nCOPY tool /tool\n"})
	if err != nil {
		return err
	}
	answer, err := api.ImageBuild(ctx, root, build.ImageBuildOptions{Tags: []string{name}, Remove: true, ForceRemove: true})
	if err != nil {
		return fmt.Errorf("build on image %s: %w", base, err)
	}
	defer answer.Body.Close()
	for lines := json.NewDecoder(answer.Body); ; { // that a step failed is in the stream only
		var line struct {
			Error string `json:"error"`
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("build on image %s: %w", base, err)
		}
		if line.Error != "" {
			return fmt.Errorf("build on image %s: %s", base, line.Error)
		}
	}
}

func random() string {
	b := make([]byte, 5)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
