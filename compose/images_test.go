package compose_test

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fromImage copies a file or a directory out of an image and returns its path.
func fromImage(t *testing.T, image, path string) string {
	t.Helper()
	id := docker(t, "create", image)
	defer docker(t, "rm", id)
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	docker(t, "cp", id+":"+path, to)
	return to
}

// TestImagesHoldLicences wants the licences of all that our images hold beside
// Debian, whose packages bring their own: the modules that each program says it is
// built of, Go, node, npm and pi.
func TestImagesHoldLicences(t *testing.T) {
	if out, err := st.script("scripts/images", "clients"); err != nil {
		t.Fatalf("build the images: %v\n%s", err, out)
	}
	for image, programs := range map[string][]string{
		"gate":     {"/gate", "/cell"},
		"executor": {"/executor"},
		"agent":    {"/sallyport/entrypoint"},
		"demo":     {"/sallyport/internet"},
		"clients":  {"/sallyport/clients", "/sallyport/entrypoint"},
	} {
		tagged := "sallyport/" + image + ":dev"
		text, err := os.ReadFile(fromImage(t, tagged, "/usr/share/doc/sallyport/"+image+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		for _, program := range programs {
			info, err := buildinfo.ReadFile(fromImage(t, tagged, program))
			if err != nil {
				t.Fatal(err)
			}
			parts := []string{"sallyport, LICENSE\n", "Go " + info.GoVersion + ", LICENSE\n", "Apache License"}
			for _, module := range info.Deps {
				parts = append(parts, module.Path+" "+module.Version+", ")
			}
			if len(parts) < 5 {
				t.Errorf("%s is built of %v only", program, parts)
			}
			for _, part := range parts {
				if !strings.Contains(string(text), part) {
					t.Errorf("%s in sallyport/%s: its licences lack %s", program, image, part)
				}
			}
		}
	}
	modules := fromImage(t, "sallyport/agent:dev", "/usr/local/lib/node_modules")
	dirs := []string{filepath.Dir(fromImage(t, "sallyport/agent:dev", "/usr/local/share/doc/node/LICENSE"))}
	for _, pattern := range []string{"[^@]*", "@*/*"} {
		found, err := filepath.Glob(filepath.Join(modules, pattern))
		if err != nil || len(found) < 2 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		dirs = append(dirs, found...)
	}
	for _, dir := range dirs {
		if found, _ := filepath.Glob(filepath.Join(dir, "LICENSE*")); len(found) == 0 {
			t.Errorf("there is no licence in %s", dir)
		}
	}
}

// TestFormerImagesGo wants that an image whose place a new one takes is gone
// afterwards, but not while a container uses it.
func TestFormerImagesGo(t *testing.T) {
	const tag = "former-test"
	former := map[string]string{}
	for _, name := range []string{"gate", "executor"} {
		build := exec.Command("docker", "build", "-q", "-t", "sallyport/"+name+":"+tag, "-")
		build.Stdin = strings.NewReader("FROM sallyport/" + name + ":dev\nLABEL org.sallyport.inputs=former\n")
		build.Env = append(os.Environ(), "DOCKER_BUILDKIT=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
		former[name] = docker(t, "image", "inspect", "-f", "{{.Id}}", "sallyport/"+name+":"+tag)
	}
	user := docker(t, "create", former["gate"])
	t.Cleanup(func() {
		docker(t, "rm", user)
		for _, name := range []string{"demo", "agent", "agent-tools", "executor", "gate"} {
			docker(t, "image", "rm", "sallyport/"+name+":"+tag)
		}
		docker(t, "image", "rm", former["gate"])
		if err := os.RemoveAll("../bin/images/" + tag); err != nil {
			t.Error(err)
		}
	})
	images := exec.CommandContext(t.Context(), "../scripts/images")
	images.Env = append(os.Environ(), "SALLYPORT_TAG="+tag)
	if out, err := images.CombinedOutput(); err != nil {
		t.Fatalf("scripts/images: %v\n%s", err, out)
	}
	for name, id := range former {
		if now := docker(t, "image", "inspect", "-f", "{{.Id}}", "sallyport/"+name+":"+tag); now == id {
			t.Errorf("control: sallyport/%s was not built", name)
		}
	}
	if docker(t, "image", "ls", "-q", "--filter", "dangling=true", "--no-trunc") == "" {
		t.Error("control: no image is without a tag")
	}
	left := docker(t, "image", "ls", "-qa", "--no-trunc")
	if strings.Contains(left, former["executor"]) {
		t.Error("the former image of the executor is left")
	}
	if !strings.Contains(left, former["gate"]) {
		t.Error("the former image of the gate is gone, which a container uses")
	}
}
