package artifacts

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

	"sallyport/entrypoint/wire"
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

// collect runs Send over a directory of the test's own.
func collect(t *testing.T, ctx context.Context, dir string, limits wire.Limits, patterns ...string) ([]string, []wire.Skipped, error) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := wire.CheckGlobs(patterns); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	skipped, err := Send(ctx, fd, patterns, limits, &out)
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
	got, skipped, err := collect(t, ctx, dir, wire.Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 3}, "*")
	if len(got) != 3 || len(skipped) != 2 || skipped[0].Name != "f3" || err != nil {
		t.Errorf("at most 3 files: %q, %v, %v", got, skipped, err)
	}
	// Every budget, to the byte: the stream never has more, and all fits in the end.
	for bytes := int64(0); bytes < 30_000; bytes += 100 {
		got, skipped, err := collect(t, ctx, dir, wire.Limits{ArtifactBytes: bytes, ArtifactFiles: 9}, "*")
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
	if _, _, err := collect(t, cancelled, dir, wire.Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 3}, "*"); err == nil {
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
	got, skipped, err := collect(t, t.Context(), dir, wire.Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 9}, "**")
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
	got, skipped, err := collect(t, t.Context(), dir, wire.Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 9}, "**")
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
	_, skipped, err = collect(t, t.Context(), dir, wire.Limits{ArtifactBytes: 1 << 20, ArtifactFiles: 9}, "*")
	if err != nil || skipped[len(skipped)-1].Reason != "the list is longer" {
		t.Errorf("%d left out, %v", len(skipped), err)
	}
	if err := wire.NewWriter(io.Discard).WriteJSON(wire.FrameExit, wire.Exit{ArtifactsSkipped: skipped, Error: strings.Repeat("\x01", wire.MaxErrorText)}); err != nil {
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
	_, err = Send(t.Context(), fd, []string{"f"}, wire.Limits{ArtifactBytes: 1 << 22, ArtifactFiles: 1}, failingWriter{gone})
	if !errors.Is(err, gone) {
		t.Errorf("%v, want %v", err, gone)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }
