package entrypoint

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// contents reads a tar stream into a list of what it holds.
func contents(t *testing.T, r io.Reader) []string {
	t.Helper()
	var found []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatalf("read the archive: %v", err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatalf("read %q: %v", h.Name, err)
		}
		if h.Typeflag != tar.TypeReg || h.Uname != "" || h.Gname != "" || h.Uid != 0 || h.Mode&^0o777 != 0 {
			t.Errorf("%q is no plain file without an owner: %+v", h.Name, h)
		}
		if len(b) > 20 {
			b = fmt.Appendf(nil, "%d bytes", len(b))
		}
		found = append(found, h.Name+"="+string(b))
	}
}

// TestArtifactsOfAJob packs what a hostile job has left.
//
// probe: F1, F4
// oracle: the archive as it comes out, beside the list of what was left out
func TestArtifactsOfAJob(t *testing.T) {
	s := session(t)
	dir := workspace(t)
	job := shell(dir, `
		mkdir -p out/deep/er other
		echo a >out/a.txt; echo b >out/deep/er/b.txt; chmod 4755 out/a.txt; echo no >other/no.txt
		echo secret >secret; chmod 000 secret; ln out/a.txt out/hard.txt
		ln -s /etc/passwd out/link.txt; ln -s /etc out/etc; ln -s other linked
		mkfifo out/pipe.txt; mkdir out/dir.txt
		head -c 100000 /dev/zero >out/big.txt
		( while :; do rm -rf out/deep; ln -s /etc out/deep; rm -rf out/deep; mkdir -p out/deep/er; echo b >out/deep/er/b.txt; done ) &
		sleep 0.1; kill -STOP $!; rm -rf out/deep; mkdir -p out/deep/er; echo b >out/deep/er/b.txt; kill -CONT $!`)
	job.Artifacts = []string{"out/**/*.txt", "out/etc/passwd", "linked/*", "secret", "out/a.txt", "missing"}
	job.Limits = Limits{ArtifactBytes: 50_000, ArtifactFiles: 10}
	got := do(t, s, job, "")
	if got.Error != "" || got.Code != 0 {
		t.Errorf("exit %+v, errors %q", got.Exit, got.err)
	}
	if int64(got.artifacts.Len()) > job.Limits.ArtifactBytes {
		t.Errorf("the stream has %d bytes, more than %d", got.artifacts.Len(), job.Limits.ArtifactBytes)
	}
	files := contents(t, &got.artifacts)
	files = slices.DeleteFunc(files, func(f string) bool { return f == "out/deep/er/b.txt=b\n" }) // it may be gone
	if want := []string{"out/a.txt=a\n", "out/hard.txt=a\n"}; !slices.Equal(files, want) {
		t.Errorf("files %q, want %q", files, want)
	}
	reasons := make(map[string]string)
	for _, sk := range got.ArtifactsSkipped {
		reasons[sk.Name] = sk.Reason
	}
	for name, want := range map[string]string{
		"out/link.txt": "symbolic link", "out/etc": "symbolic link", "linked": "symbolic link",
		"out/pipe.txt": "named pipe", "out/big.txt": "too large: 100000 bytes", "secret": "unreadable",
	} {
		if os.Getuid() != 0 && name == "secret" {
			continue // the mapped user is root in its namespace
		}
		if !strings.Contains(reasons[name], want) {
			t.Errorf("%s was left out for %q, want %q", name, reasons[name], want)
		}
	}
	// Without limits nothing is sent.
	job.Limits = Limits{}
	if got := do(t, s, job, ""); got.artifacts.Len() > 0 || got.ArtifactsSkipped != nil {
		t.Errorf("%d bytes without a limit, %v", got.artifacts.Len(), got.ArtifactsSkipped)
	}
}

// collect runs sendArtifacts over a directory of the test's own.
func collect(t *testing.T, ctx context.Context, dir string, limits Limits, patterns ...string) ([]string, []Skipped, error) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, p := range patterns {
		if err := checkGlob(p); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	skipped, err := sendArtifacts(ctx, fd, patterns, limits, &out)
	if int64(out.Len()) > limits.ArtifactBytes {
		t.Errorf("the stream has %d bytes, more than %d", out.Len(), limits.ArtifactBytes)
	}
	if err != nil {
		return nil, skipped, err
	}
	return contents(t, strings.NewReader(out.String())), skipped, nil
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

// TestArtifactLimits packs under all limits.
//
// probe: F3
// oracle: the bytes of the archive at every limit
func TestArtifactLimits(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		put(t, dir, fmt.Sprintf("f%d", i), strings.Repeat("x", 1000))
	}
	ctx := t.Context()
	got, skipped, err := collect(t, ctx, dir, Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 3}, "*")
	if len(got) != 3 || len(skipped) != 2 || skipped[0].Name != "f3" || err != nil {
		t.Errorf("at most 3 files: %q, %v, %v", got, skipped, err)
	}
	// Every budget, to the byte: the stream never has more, and all fits in the end.
	for bytes := int64(0); bytes < 30_000; bytes += 100 {
		got, skipped, err := collect(t, ctx, dir, Limits{ArtifactBytes: bytes, ArtifactFiles: 9}, "*")
		if bytes < tarEnd {
			if err == nil {
				t.Errorf("%d bytes are enough", bytes)
			}
			continue
		}
		if err != nil || len(got)+len(skipped) != 5 {
			t.Fatalf("%d bytes: %q, %v, %v", bytes, got, skipped, err)
		}
		if bytes > 25_000 && len(got) != 5 {
			t.Errorf("%d bytes are not enough for 5 files", bytes)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := collect(t, cancelled, dir, Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 3}, "*"); err == nil {
		t.Error("a signal does not end it")
	}
}

func TestArtifactNames(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat(strings.Repeat("d", 200)+"/", 3) + strings.Repeat("n", 200)
	names := []string{"bad\xff", "line\nfeed", "ünïcode", long}
	for _, n := range names {
		put(t, dir, n, "x")
	}
	got, skipped, err := collect(t, t.Context(), dir, Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 9}, "**")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{long + "=x", "line\nfeed=x", "ünïcode=x"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(skipped) != 1 || skipped[0].Reason != "name is not UTF-8" {
		t.Errorf("left out: %q", skipped)
	}
}

// TestArtifactBounds packs what is deep and many.
//
// probe: F3
// oracle: the list of what was left out, which still fits
func TestArtifactBounds(t *testing.T) {
	dir := t.TempDir()
	deep := dir
	for range maxDepth + 2 {
		deep = filepath.Join(deep, "d")
	}
	put(t, deep, "f", "x")
	got, skipped, err := collect(t, t.Context(), dir, Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 9}, "**")
	if len(got) != 0 || err != nil || !strings.Contains(skipped[len(skipped)-1].Reason, "deep") {
		t.Errorf("%q, %v, %v", got, skipped, err)
	}
	// The list of what is left out must fit in an exit frame.
	dir = t.TempDir()
	for i := range 3000 {
		if err := os.Symlink("x", filepath.Join(dir, fmt.Sprintf("%s%d", strings.Repeat("\x01", 200), i))); err != nil {
			t.Fatal(err)
		}
	}
	_, skipped, err = collect(t, t.Context(), dir, Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 9}, "*")
	if err != nil || skipped[len(skipped)-1].Reason != "the list is longer" {
		t.Errorf("%d left out, %v", len(skipped), err)
	}
	if err := NewWriter(io.Discard).WriteJSON(FrameExit, Exit{ArtifactsSkipped: skipped, Error: strings.Repeat("\x01", maxErrorText)}); err != nil {
		t.Errorf("the exit frame: %v", err)
	}
}

func TestArtifactWriterFails(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "f", strings.Repeat("x", 1<<20))
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	gone := errors.New("executor gone")
	_, err = sendArtifacts(t.Context(), fd, []string{"f"}, Limits{ArtifactBytes: 1 << 22, ArtifactFiles: 1}, &failingWriter{err: gone})
	if !errors.Is(err, gone) {
		t.Errorf("%v, want %v", err, gone)
	}
}

func TestGlobs(t *testing.T) {
	for _, g := range []string{"a", "*.txt", "**/x", "out/**", "{a,b/c}/d", "a/[a-z]*"} {
		if err := checkGlob(g); err != nil {
			t.Errorf("%q: %v", g, err)
		}
	}
	for _, g := range []string{"", "/a", "../a", "..", ".", "a/../b", "./a", "a//b", "a/", "[", "{a", "a\n",
		strings.Repeat("x", maxGlob+1), strings.Repeat("{a,b}", maxAlternatives+1)} {
		if err := checkGlob(g); err == nil {
			t.Errorf("%q is accepted", g)
		}
	}
	if err := CheckGlobs(slices.Repeat([]string{"a"}, maxGlobs+1)); err == nil {
		t.Error("any number of patterns is accepted")
	}
	tests := []struct {
		glob, dir          string
		possible, outright bool
	}{
		{"out/*.txt", "out", true, true},
		{"out/*.txt", "out/deep", false, false},
		{"out/*.txt", "other", false, false},
		{"o*/x", "out", true, true},
		{"out/**", "out/deep/er", true, false},
		{"**/x", "any/where", true, false},
		{"{a,b/c}/d", "b", true, false},
		{"a", "a", false, false},
		{"a/b/c", "a", true, true},
		{"a/b/c", "a/b", true, true},
	}
	for _, tt := range tests {
		possible, outright := globs{tt.glob}.below(tt.dir)
		if possible != tt.possible || outright != tt.outright {
			t.Errorf("%q below %q: %v, %v", tt.glob, tt.dir, possible, outright)
		}
	}
}

// FuzzGlobs: what a pattern matches, a walk by below must have entered.
func FuzzGlobs(f *testing.F) {
	f.Add("out/**/*.txt", "out/a/b/c.txt")
	f.Add("{a,b/c}/[d-f]?", "b/c/e1")
	f.Add("a\\*b/c", "a*b/c")
	f.Fuzz(func(t *testing.T, glob, name string) {
		if checkGlob(glob) != nil || filepath.Clean(name) != name || filepath.IsAbs(name) || strings.HasPrefix(name, "..") {
			return
		}
		gs := globs{glob}
		if !gs.match(name) {
			return
		}
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			if possible, _ := gs.below(dir); !possible {
				t.Errorf("%q matches %q, but %q is not entered", glob, name, dir)
			}
		}
	})
}
