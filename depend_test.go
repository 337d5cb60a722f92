package sallyport_test

import (
	"debug/elf"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// allowed lists, for each package that others build on, which of our own
// packages it may import. A package that is not listed may import any of them,
// but nobody may import a command. The packages of internal that import nothing of
// ours are as good as a library to those that do import them: they know nothing of
// what sallyport is, so they turn no direction round.
var allowed = map[string][]string{
	"firewall":                  {"internal/strictyaml"},
	"githubauth":                {"internal/strictyaml"},
	"firewall/patch":            {"firewall"},
	"gate/control":              {"firewall"},
	"cell":                      {},
	"entrypoint/wire":           {},
	"entrypoint/pid1":           {"entrypoint/wire", "entrypoint/pid1/artifacts", "entrypoint/pid1/files"},
	"entrypoint/pid1/artifacts": {"entrypoint/wire"},
	"entrypoint/pid1/files":     {"entrypoint/wire"},
	"entrypoint/probe":          {},
	"entrypoint/github":         {"entrypoint/wire"},
	"executor/api":              {"firewall"},
	"executor/client":           {"firewall", "executor/api"},
	"executor/sessionlog":       {"firewall", "executor/api"},
	"executor/agent":            {"firewall", "entrypoint/wire", "entrypoint/github", "executor/api"},
	"executor/tokens":           {"githubauth"},
	"executor/tree":             {},
	"executor/backend":          {},
	"executor/backend/docker":   {"executor/backend"},

	"dnsgate":  {"firewall", "internal/contain", "internal/evloop"},
	"sniproxy": {"firewall"},
	"gate":     {"firewall", "dnsgate", "sniproxy", "gate/control", "internal/contain", "internal/envvars"},

	// What GitHub checks is written down once more there, not taken from what it shall check.
	"compose/internet/github": {},
	"internal/contain":        {},
	"internal/envvars":        {},
	"internal/evloop":         {"internal/contain"},
	"internal/probes":         {},
	"internal/output":         {},
	"internal/strictyaml":     {},
	"internal/version":        {},
	"internal/wallclock":      {},
}

func TestImportDirection(t *testing.T) {
	for dir, pkg := range packages(t) {
		for _, imp := range pkg.Imports {
			ours, ok := strings.CutPrefix(imp, "sallyport/")
			if !ok {
				continue
			}
			if strings.HasPrefix(ours, "cmd/") {
				t.Errorf("%s imports the command %s", dir, ours)
			}
			if may, listed := allowed[dir]; listed && !slices.Contains(may, ours) {
				t.Errorf("%s imports %s; it may import %v only", dir, ours, may)
			}
		}
	}
	for dir := range allowed {
		if _, err := build.ImportDir(dir, 0); err != nil {
			t.Errorf("the list of import directions names %s: %v", dir, err)
		}
	}
}

func TestPackageComments(t *testing.T) {
	for dir, pkg := range packages(t) {
		var comments int
		for _, file := range pkg.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, file), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				comments++
				want := "Package " + pkg.Name + " "
				if pkg.Name == "main" {
					want = "Command " + filepath.Base(dir) + " "
				}
				if !strings.HasPrefix(f.Doc.Text(), want) {
					t.Errorf("%s/%s: the package comment does not begin with %q", dir, file, want)
				}
			}
		}
		if comments != 1 {
			t.Errorf("%s has %d package comments, want 1", dir, comments)
		}
	}
}

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
	ours := goTool(t, "list", "-deps", "-f", `{{if .Module}}{{if .Module.Main}}{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`, "./cmd/"+command)
	return append(symbols(t, filepath.Join(dir, command)), kernelCalls(t, strings.Fields(ours))...)
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
	goTool(t, "build", "-buildvcs=false", "-ldflags=-w", "-o", dir, "./cmd/...")
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
	commands, err := os.ReadDir("cmd")
	if err != nil || len(commands) != 5 {
		t.Errorf("%d commands, %v: say above which of them run on the host", len(commands), err)
	}
}

// TestOnlyTheEntrypointIsPID1 requires that no other program links what runs as PID 1 of
// a sandbox: it takes over signals, children and descriptors of its process.
func TestOnlyTheEntrypointIsPID1(t *testing.T) {
	const pid1 = "sallyport/entrypoint/pid1"
	commands, err := os.ReadDir("cmd")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands {
		imported := strings.Fields(goTool(t, "list", "-deps", "./cmd/"+c.Name()))
		linked := slices.ContainsFunc(imported, func(path string) bool { return path == pid1 || strings.HasPrefix(path, pid1+"/") })
		if linked != (c.Name() == "entrypoint") {
			t.Errorf("%s links %s: %t", c.Name(), pid1, linked)
		}
	}
}

// packages returns every package of the module by its directory. Folders with
// a go.mod of their own are other modules.
func packages(t *testing.T) map[string]*build.Package {
	t.Helper()
	found := map[string]*build.Package{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); path != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin") {
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != "." {
			return filepath.SkipDir // another module
		}
		if pkg, err := build.ImportDir(path, 0); err == nil && len(pkg.GoFiles) > 0 {
			found[filepath.ToSlash(path)] = pkg
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 8 {
		t.Fatalf("found only %d packages: is the test run from the module's root?", len(found))
	}
	return found
}
