package cmd_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// starters are how a Go program comes to start another one, below all that it may be called
// by. Whatever else a package of its import graph could do, the linker leaves out.
var starters = []string{
	"os.StartProcess", "syscall.StartProcess", "syscall.ForkExec", "syscall.forkExec", "syscall.forkAndExecInChild",
	"syscall.Exec", "golang.org/x/sys/unix.Exec",
}

// starting returns the starters that are linked into a command, and the places in our own
// packages of its import graph that call the kernel for one.
func starting(t *testing.T, dir, command string) []string {
	t.Helper()
	ours := goTool(t, "list", "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`, "./"+command)
	return append(symbols(t, filepath.Join(dir, command)), kernelCalls(t, strings.Fields(ours))...)
}

// commands are the names of all commands.
func commands(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// goTool runs the go command for what the images hold.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", args[0], err)
	}
	return string(out)
}

func symbols(t *testing.T, program string) (found []string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil || len(all) < 1000 {
		t.Fatalf("%s: %d symbols, %v", program, len(all), err)
	}
	for _, s := range all {
		if slices.Contains(starters, s.Name) {
			found = append(found, s.Name)
		}
	}
	return found
}

func kernelCalls(t *testing.T, files []string) (found []string) {
	t.Helper()
	if len(files) == 0 {
		t.Fatal("go list knows no files of ours")
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if call := regexp.MustCompile(`SYS_(EXECVE|EXECVEAT|FORK|VFORK|CLONE|CLONE3)\b`).Find(src); call != nil {
			found = append(found, file+": "+string(call))
		}
	}
	return found
}

// TestHostStartsNoProgram wants that nothing which runs on the host can start a
// program: what an agent has left in a workspace, settings of git among it, is
// copied and never run.
//
// probe: F5
// oracle: the symbols of each program as it is linked; those of the entrypoint and of the
// keeper, which do start programs, have them
func TestHostStartsNoProgram(t *testing.T) {
	dir := t.TempDir()
	goTool(t, "build", "-buildvcs=false", "-ldflags=-w", "-o", dir, "./...")
	for _, command := range []string{"executor", "gate", "sallyport"} {
		if found := starting(t, dir, command); len(found) != 0 {
			t.Errorf("%s can start a program: it has %q (go build -ldflags=-dumpdep says what leads there)", command, found)
		}
	}
	for command, way := range map[string]string{"entrypoint": "syscall.forkExec", "cell": "syscall.Exec"} {
		if found := starting(t, dir, command); !slices.Contains(found, way) {
			t.Errorf("control: %s has %q only", command, found)
		}
	}
	if n := len(commands(t)); n != 5 {
		t.Errorf("%d commands: say above which of them run on the host", n)
	}
}

// TestOnlyTheEntrypointIsPID1 requires that no other program links what runs as PID 1 of
// a sandbox: it takes over signals, children and descriptors of its process.
func TestOnlyTheEntrypointIsPID1(t *testing.T) {
	const pid1 = "sallyport/entrypoint/pid1"
	for _, command := range commands(t) {
		imported := strings.Fields(goTool(t, "list", "-deps", "./"+command))
		linked := slices.ContainsFunc(imported, func(path string) bool { return path == pid1 || strings.HasPrefix(path, pid1+"/") })
		if linked != (command == "entrypoint") {
			t.Errorf("%s links %s: %t", command, pid1, linked)
		}
	}
}
