package compose_test

import (
	"archive/tar"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/docker/go-units"
)

// gateMemory is the limit of the gate's memory in bytes, which the runtime knows,
// too, and keeps a distance from.
func gateMemory(t *testing.T) int64 {
	t.Helper()
	var limit int64
	for _, v := range inspect[[]string](t, container(t, "gate", ""), ".Config.Env") {
		if value, ok := strings.CutPrefix(v, "GOMEMLIMIT="); ok {
			var err error
			if limit, err = units.RAMInBytes(value); err != nil {
				t.Fatal(err)
			}
		}
	}
	most := inspect[int64](t, container(t, "gate", ""), ".HostConfig.Memory")
	if limit == 0 || most < limit+limit/8 {
		t.Errorf("the gate's memory is bounded at %d bytes, its runtime's at %d: want the second well below the first", most, limit)
	}
	return most
}

// inspect is one field of what the engine knows of a container.
func inspect[T any](t *testing.T, id, field string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(docker(t, "inspect", "-f", "{{json "+field+"}}", id)), &v); err != nil {
		t.Fatalf("%s of %s: %v", field, id, err)
	}
	return v
}

// TestGateContainer looks at what the gate runs with, as the engine and the
// kernel see it.
//
// probe: N12
// oracle: the kernel's account of the gate's process: user, capabilities, seccomp, the
// settings of its network namespace
func TestGateContainer(t *testing.T) {
	gate := container(t, "gate", "")
	gateMemory(t)
	if got := inspect[string](t, gate, ".Config.User"); got != "65532:65532" {
		t.Errorf("the gate's user is %q", got)
	}
	for field, want := range map[string]bool{".HostConfig.ReadonlyRootfs": true, ".HostConfig.Privileged": false} {
		if got := inspect[bool](t, gate, field); got != want {
			t.Errorf("%s is %v", field, got)
		}
	}
	if drop, add := inspect[[]string](t, gate, ".HostConfig.CapDrop"), inspect[[]string](t, gate, ".HostConfig.CapAdd"); !slices.Equal(drop, []string{"ALL"}) || len(add) > 0 {
		t.Errorf("capabilities: %v are dropped, %v added", drop, add)
	}
	if opts := inspect[[]string](t, gate, ".HostConfig.SecurityOpt"); !slices.ContainsFunc(opts, func(o string) bool { return strings.HasPrefix(o, "no-new-privileges") }) {
		t.Errorf("security options: %v", opts)
	}
	if n, pids := inspect[int64](t, gate, ".HostConfig.MemorySwap"), inspect[int64](t, gate, ".HostConfig.PidsLimit"); n != inspect[int64](t, gate, ".HostConfig.Memory") || pids < 1 || pids > 1024 {
		t.Errorf("the limit of memory and swap is %d, of processes %d", n, pids)
	}
	for _, m := range inspect[[]struct{ Destination, Source string }](t, gate, ".Mounts") {
		if !slices.Contains([]string{"/run/sallyport", "/etc/sallyport", "/var/log/sallyport"}, m.Destination) || strings.HasSuffix(m.Source, ".sock") {
			t.Errorf("the gate has %s at %s", m.Source, m.Destination)
		}
	}

	status := ofPID1(t, gate, "status")
	for _, want := range []string{"Uid:\t65532\t65532\t65532\t65532", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want+"\n") {
			t.Errorf("the kernel does not say %q of the gate:\n%s", want, status)
		}
	}
	for name, want := range map[string]string{"ip_forward": "0", "conf/all/arp_ignore": "1", "conf/all/rp_filter": "1"} {
		var got []byte
		err := within(namespaceOf(t, gate), func() (err error) {
			got, err = os.ReadFile("/proc/sys/net/ipv4/" + name)
			return err
		})
		if err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("in the gate's namespace %s is %q, %v", name, got, err)
		}
	}
}

// TestGateImage unpacks the image: two static programs and nothing to run but
// them.
func TestGateImage(t *testing.T) {
	id := docker(t, "create", "sallyport/gate:dev")
	defer docker(t, "rm", id)
	export := exec.Command("docker", "export", id)
	out, err := export.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := export.Start(); err != nil {
		t.Fatal(err)
	}
	var programs []string
	for files := tar.NewReader(out); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		// What the engine adds to each container is empty: /etc/hosts, /dev/console.
		if h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeLink {
			if h.Name != "etc/mtab" {
				t.Errorf("the image has a link %s to %s", h.Name, h.Linkname)
			}
			continue
		}
		if h.Typeflag != tar.TypeReg || h.Size == 0 {
			continue
		}
		if h.Name == "usr/share/doc/sallyport/gate.txt" && h.Mode&0o111 == 0 {
			continue // licences
		}
		programs = append(programs, h.Name)
		if h.Mode&0o6000 != 0 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		wantStatic(t, h.Name, files)
	}
	if err := export.Wait(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(programs)
	if !slices.Equal(programs, []string{"cell", "gate"}) {
		t.Errorf("the image of the gate holds the files %v, want its two programs alone", programs)
	}
}

// wantStatic fails the test unless a file is a program that needs no other.
func wantStatic(t *testing.T, name string, content io.Reader) {
	t.Helper()
	copied, err := os.Create(filepath.Join(t.TempDir(), "program"))
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	if _, err := io.Copy(copied, content); err != nil {
		t.Fatal(err)
	}
	program, err := elf.NewFile(copied)
	if err != nil {
		t.Errorf("%s is no program: %v", name, err)
		return
	}
	if libraries, err := program.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Errorf("%s needs %v", name, libraries)
	}
	if slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("%s needs a loader", name)
	}
}
