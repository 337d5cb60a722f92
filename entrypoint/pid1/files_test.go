package pid1

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/entrypoint/wire"
)

func TestFilesOfAJob(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	job := shell(dir, `cat new/sub/a b; stat -c %a:%u new/sub/a b`)
	job.Files = []wire.File{
		{Path: dir + "/new/sub/a", Content: []byte("A\n")},
		{Path: dir + "/b", Mode: 0o755, Content: []byte("B\n")},
	}
	uid := strings.TrimSpace(do(t, s, shell(dir, "id -u"), "").out)
	if got, want := do(t, s, job, "").out, "A\nB\n600:"+uid+"\n755:"+uid+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	// What an earlier job has left in the place of a file or on the way to it.
	do(t, s, shell(dir, `
		mkdir victim dir; echo keep >victim/file
		ln -s victim way; ln -s victim/file place; mkfifo pipe; ln victim/file hard`), "")
	tests := []struct {
		path, want string // a part of the error, or ""
	}{
		{"/way/file", `"way" on its way is a symbolic link`},
		{"/place/x", `"place" on its way is a symbolic link`},
		{"/victim/file/x", "no directory"},
		{"/dir", "put it in its place"},
		{"/place", ""}, {"/pipe", ""}, {"/hard", ""},
	}
	for _, tt := range tests {
		job := shell(dir, "cat victim/file; cat ."+tt.path)
		job.Files = []wire.File{{Path: dir + tt.path, Content: []byte("new\n")}}
		got := do(t, s, job, "")
		switch {
		case tt.want == "" && got.out != "keep\nnew\n":
			t.Errorf("%s: %q, %+v", tt.path, got.out, got.Exit)
		case tt.want != "" && (!strings.Contains(got.Error, tt.want) || !strings.Contains(got.Error, dir+tt.path)):
			t.Errorf("%s: %+v, want an error with %q and the file's name", tt.path, got.Exit, tt.want)
		}
	}
	if got := do(t, s, shell(dir, "ls -A"), ""); strings.Contains(got.out, ".sallyport") {
		t.Errorf("a temporary file is left: %q", got.out)
	}
}

func TestFilesRefused(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	for _, f := range []wire.File{
		{Path: "relative"}, {Path: ""}, {Path: "/"}, {Path: dir + "/"}, {Path: dir + "/../x"}, {Path: dir + "//x"},
		{Path: dir + "/nul\x00"}, {Path: dir + "/mode", Mode: 0o4755}, {Path: "/proc/self/environ"},
		{Path: "/proc/1/oom_score_adj"}, {Path: "/dev/full/x"},
	} {
		job := shell(dir, "echo ran")
		job.Files = []wire.File{f}
		got := do(t, s, job, "")
		if got.Code != -1 || got.out != "" || !strings.Contains(got.Error, "write the file") {
			t.Errorf("%q: %+v, %q", f.Path, got.Exit, got.out)
		}
	}
	if os.Getuid() == 0 { // otherwise the mapped user may own what it likes
		for _, path := range []string{"/etc/sallyport-test", "/root/x", "/nosuch/x"} {
			job := shell(dir, "echo ran")
			job.Files = []wire.File{{Path: path}}
			if got := do(t, s, job, ""); got.Code != -1 || got.out != "" || !strings.Contains(got.Error, path) {
				t.Errorf("%q: %+v, %q", path, got.Exit, got.out)
			}
		}
	}
}

// systemBundle is the bundle of the distribution that the test runs on, "" for none.
func systemBundle(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"} {
		text, err := os.ReadFile(name)
		if err == nil {
			return strings.TrimRight(string(text), "\n") + "\n"
		}
	}
	return ""
}

func TestExtraCA(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	block := func(kind, content string) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: []byte(content)})
	}
	job := shell(dir, "cat "+wire.CABundlePath)
	job.ExtraCA = append([]byte("a comment\n"), append(block("CERTIFICATE", "one"), block("CERTIFICATE", "two")...)...)
	got := do(t, s, job, "")
	if got.Error != "" || !strings.HasSuffix(got.out, string(block("CERTIFICATE", "one"))+string(block("CERTIFICATE", "two"))) {
		t.Errorf("%+v, the bundle ends with %q", got.Exit, got.out[max(0, len(got.out)-300):])
	}
	if system := systemBundle(t); !strings.HasPrefix(got.out, system) {
		t.Error("the bundle does not begin with the system's")
	} else if len(system) > 0 && !x509.NewCertPool().AppendCertsFromPEM([]byte(got.out)) {
		t.Error("the bundle holds no certificate that can be read")
	}
	for _, bad := range []string{"nonsense", string(block("PRIVATE KEY", "k")), string(append(block("CERTIFICATE", "c"), block("EC PRIVATE KEY", "k")...))} {
		job.ExtraCA = []byte(bad)
		got := do(t, s, job, "")
		if got.Code != -1 || !strings.Contains(got.Error, "extra CA") || strings.Contains(got.Error, "k=") {
			t.Errorf("%.30q: %+v", bad, got.Exit)
		}
	}
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFindProgram(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "bin/plain", "x")
	put(t, dir, "bin/tool", "x")
	put(t, dir, "more/tool/x", "x") // a directory of that name
	if err := os.Chmod(filepath.Join(dir, "bin/tool"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + dir + "/more:" + dir + "/bin"
	tests := []struct{ name, env, want string }{
		{"tool", path, dir + "/bin/tool"},
		{"plain", path, ""},
		{"nosuch", path, ""},
		{"tool", "PATH=", ""},
		{"tool", "XPATH=" + dir + "/bin", ""},
		{"./tool", "", "./tool"},
		{"/x/tool", "", "/x/tool"},
	}
	for _, tt := range tests {
		got, err := findProgram(tt.name, []string{tt.env})
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("findProgram(%q, %q): %q, %v; want %q", tt.name, tt.env, got, err, tt.want)
		}
	}
}

func TestDescribe(t *testing.T) {
	tests := []struct {
		status unix.WaitStatus
		want   wire.Exit
	}{
		{0, wire.Exit{}},
		{7 << 8, wire.Exit{Code: 7}},
		{unix.WaitStatus(unix.SIGKILL), wire.Exit{Code: -1, Signal: "KILL"}},
		{unix.WaitStatus(unix.SIGSEGV) | 0x80, wire.Exit{Code: -1, Signal: "SEGV"}}, // with a core
	}
	for _, tt := range tests {
		if got := describe(tt.status); got.Code != tt.want.Code || got.Signal != tt.want.Signal {
			t.Errorf("describe(%#x): %+v, want %+v", uint32(tt.status), got, tt.want)
		}
	}
}

func TestParentOf(t *testing.T) {
	if got, ok := parentOf(os.Getpid()); !ok || got != os.Getppid() {
		t.Errorf("%d, %v; want %d", got, ok, os.Getppid())
	}
	if _, ok := parentOf(1 << 30); ok {
		t.Error("a process that does not exist has a parent")
	}
}
