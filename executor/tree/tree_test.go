package tree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/executor/tree"
)

// everything is a limit that nothing exceeds.
var everything = tree.Size{Bytes: 1 << 62, Entries: 1 << 62}

func measure(t testing.TB, dir string, limit tree.Size) (tree.Size, error) {
	t.Helper()
	d, err := tree.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	return d.Measure(t.Context(), limit)
}

func wantEntries(t testing.TB, dir string, want int64) {
	t.Helper()
	if got, err := measure(t, dir, everything); err != nil || got.Entries != want {
		t.Errorf("%+v, %v, want %d entries", got, err, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// nest makes depth directories of one name in dir, one in another.
func nest(t testing.TB, dir, name string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, name, 0o755))
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

// bushes makes a tree that is wider and deeper than what is open or read at once:
// chains of 40 directories, each with a file, in every seventh of which are many files.
// It returns the number of its entries.
func bushes(t testing.TB, dir string) int64 {
	t.Helper()
	var entries int64
	for i := range 6 {
		below := dir
		for j := range 40 {
			below = filepath.Join(below, fmt.Sprintf("chain-%d", i))
			must(t, os.Mkdir(below, 0o755))
			files := 1
			if j%7 == 3 {
				files = 60
			}
			for k := range files {
				must(t, os.WriteFile(filepath.Join(below, strings.Repeat("n", 200)+strconv.Itoa(k)), nil, 0o600))
			}
			entries += 1 + int64(files)
		}
	}
	return entries
}

func TestMeasure(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "big"), make([]byte, 1<<20), 0o600))
	wantEntries(t, dir, 0)
	entries := bushes(t, dir)
	must(t, os.Symlink(outside, filepath.Join(dir, "link"))) // and not what it leads to
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	wantEntries(t, dir, entries+2)
	before, err := measure(t, dir, everything)
	must(t, err)
	if before.Bytes >= 1<<20+before.Entries*4096 {
		t.Errorf("%+v: a link was followed", before)
	}
	must(t, os.WriteFile(filepath.Join(dir, "chain-3", "more"), make([]byte, 1<<20), 0o600))
	after, err := measure(t, dir, everything)
	if grown := after.Minus(before); err != nil || grown.Bytes < 1<<20 || grown.Bytes > 1<<20+64<<10 || grown.Entries != 1 {
		t.Errorf("grown by %+v, %v", grown, err)
	}
}

func TestMeasureStops(t *testing.T) {
	dir := t.TempDir()
	bushes(t, dir)
	if got, err := measure(t, dir, tree.Size{Bytes: 1 << 62, Entries: 100}); err != nil || got.Entries != 101 {
		t.Errorf("limit of entries: %+v, %v", got, err)
	}
	if got, err := measure(t, dir, tree.Size{Entries: 1 << 62}); err != nil || got.Bytes == 0 || got.Entries > 10 {
		t.Errorf("limit of bytes: %+v, %v", got, err)
	}
	d, err := tree.Open(dir)
	must(t, err)
	defer d.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Measure(ctx, everything); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestMeasureDepth(t *testing.T) {
	dir := t.TempDir()
	nest(t, dir, "d", tree.MaxDepth)
	wantEntries(t, dir, tree.MaxDepth)
	must(t, os.Mkdir(filepath.Join(dir, "e"), 0o755))
	must(t, os.Rename(filepath.Join(dir, "d"), filepath.Join(dir, "e", "d")))
	if _, err := measure(t, dir, everything); !errors.Is(err, tree.ErrDeep) {
		t.Errorf("one deeper: %v", err)
	}
}

// TestMeasureStaysOnItsFileSystem measures /dev, in which others are mounted.
func TestMeasureStaysOnItsFileSystem(t *testing.T) {
	const mounted = "/dev/shm"
	dir, err := os.MkdirTemp(mounted, "tree-test-")
	must(t, err)
	defer os.RemoveAll(dir)
	for i := range 5000 {
		must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	if got, err := measure(t, mounted, everything); err != nil || got.Entries < 5001 {
		t.Errorf("%s, the control: %+v, %v", mounted, got, err)
	}
	if got, err := measure(t, "/dev", everything); err != nil || got.Entries >= 5000 || got.Entries == 0 {
		t.Errorf("/dev: %+v, %v", got, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink(dir, filepath.Join(dir, "link")))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for _, name := range []string{"link", "file", "absent"} {
		if d, err := tree.Open(filepath.Join(dir, name)); err == nil {
			d.Close()
			t.Errorf("%s was opened as a directory", name)
		}
	}
	must(t, os.Mkdir(filepath.Join(dir, "below"), 0o700))
	for rel, ok := range map[string]bool{".": true, "below": true, "link/below": false, "below/../link": false, "file": false, "absent": false} {
		d, err := tree.OpenBelow(dir, rel)
		if (err == nil) != ok {
			t.Errorf("%s below: %v", rel, err)
		}
		if d != nil {
			d.Close()
		}
	}
}

func TestRemove(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	kept := filepath.Join(outside, "kept")
	must(t, os.WriteFile(kept, nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "beside"), nil, 0o600))
	top := filepath.Join(dir, "top")
	must(t, os.Mkdir(top, 0o700))
	bushes(t, top)
	must(t, os.Symlink(outside, filepath.Join(top, "chain-1", "link")))
	must(t, os.Symlink(outside, filepath.Join(dir, "link")))
	must(t, unix.Mkfifo(filepath.Join(top, "pipe"), 0o600))
	for _, name := range []string{"top", "link", "top", "absent"} {
		if err := tree.Remove(t.Context(), filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	wantEntries(t, dir, 1)
	if _, err := os.Stat(kept); err != nil {
		t.Error("a link was followed")
	}
}

// TestRemoveGoesOn comes upon what cannot be removed, a mount, which root makes in
// a namespace of its own and others in a user's.
func TestRemoveGoesOn(t *testing.T) {
	dir := t.TempDir()
	bushes(t, dir)
	out := child(t, "mounted", dir)
	if !strings.Contains(out, "busy") && !strings.Contains(out, "another file system") {
		t.Errorf("the error is %q", out)
	}
	// The 30 directories down to the mount's, and what is in that: 10 directories and
	// their files, of two of them 60.
	wantEntries(t, dir, 30+10+9+2*60)
}

func TestRemoveEndsWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "top")
	must(t, os.Mkdir(dir, 0o700))
	entries := bushes(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tree.Remove(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	wantEntries(t, dir, entries)
	must(t, tree.Remove(t.Context(), dir))
}

// TestMoving looks at a tree and removes it while somebody moves its directories.
func TestMoving(t *testing.T) {
	top := filepath.Join(t.TempDir(), "top")
	must(t, os.Mkdir(top, 0o700))
	for range 3 {
		bushes(t, top)
		at := filepath.Join(top, strings.Repeat("chain-5/", 10))
		ctx, cancel := context.WithCancel(t.Context())
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			for ctx.Err() == nil {
				os.Rename(filepath.Join(at, "chain-5"), filepath.Join(top, "aside"))
				os.Rename(filepath.Join(top, "aside"), filepath.Join(at, "chain-5"))
			}
		}()
		for range 50 {
			if _, err := measure(t, top, everything); err != nil && !errors.Is(err, tree.ErrMoved) {
				t.Error(err)
			}
		}
		err := tree.Remove(t.Context(), filepath.Join(top, "chain-5"))
		cancel()
		<-moved
		if err != nil {
			t.Error(err)
		}
		must(t, tree.Remove(t.Context(), top))
		must(t, os.Mkdir(top, 0o700))
	}
}

// TestDoors finds what leads to somebody outside, and not the socket of one who is gone.
func TestDoors(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700))
	listen := func(network, name string) {
		t.Helper()
		fd, err := unix.Socket(unix.AF_UNIX, map[string]int{"stream": unix.SOCK_STREAM, "packets": unix.SOCK_SEQPACKET, "datagrams": unix.SOCK_DGRAM}[network], 0)
		must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, name)}))
		if network != "datagrams" {
			must(t, unix.Listen(fd, 0))
		}
	}
	doors := func(most int) string {
		t.Helper()
		d, err := tree.Open(dir)
		must(t, err)
		defer d.Close()
		size, names, err := d.Doors(t.Context(), most)
		plain, err2 := d.Measure(t.Context(), everything)
		if err != nil || err2 != nil || size != plain {
			t.Errorf("%+v, %v; Measure: %+v, %v", size, err, plain, err2)
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	must(t, os.WriteFile(filepath.Join(dir, "a", "file"), nil, 0o600))
	gone, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	must(t, err)
	must(t, unix.Bind(gone, &unix.SockaddrUnix{Name: filepath.Join(dir, "a", "gone")}))
	must(t, unix.Close(gone))
	if got := doors(10); got != "" {
		t.Errorf("found %q where nobody listens", got)
	}
	listen("stream", "a/b/stream")
	listen("packets", "packets")
	listen("datagrams", "a/datagrams")
	must(t, unix.Mkfifo(filepath.Join(dir, "a", "pipe"), 0o600))
	must(t, os.Symlink("a/pipe", filepath.Join(dir, "link")))
	if got, want := doors(10), "a/b/stream a/datagrams a/pipe packets"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	if got := doors(2); strings.Count(got, " ") != 1 {
		t.Errorf("found %q, want two", got)
	}
}

// TestStripSetID takes bits away wherever one could hide them, and nothing else.
func TestStripSetID(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	uid := os.Getuid()
	made := func(mode os.FileMode, elem ...string) string {
		t.Helper()
		path := filepath.Join(elem...)
		must(t, os.WriteFile(path, []byte("text"), 0o600))
		must(t, os.Chmod(path, mode))
		return path
	}
	nest(t, dir, "d", tree.MaxDepth+10)
	hidden := func(want uint32) {
		t.Helper()
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		for range tree.MaxDepth + 10 {
			next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			must(t, err)
			unix.Close(fd)
			fd = next
		}
		defer unix.Close(fd)
		f, err := unix.Openat(fd, "deep", unix.O_RDWR|unix.O_CREAT, 0o600)
		must(t, err)
		defer unix.Close(f)
		var st unix.Stat_t
		if want == 0 {
			must(t, unix.Fchmod(f, 0o4755))
		} else if must(t, unix.Fstat(f, &st)); st.Mode&0o7777 != want {
			t.Errorf("deep down: mode %o", st.Mode)
		}
	}
	hidden(0)
	other := made(0o755|os.ModeSetuid, outside, "other")
	must(t, os.Symlink(other, filepath.Join(dir, "link")))
	want := map[string]os.FileMode{
		made(0o755|os.ModeSetuid, dir, "user"):                  0o755,
		made(0o711|os.ModeSetgid|os.ModeSticky, dir, "group"):   0o711 | os.ModeSticky,
		made(0o700|os.ModeSetuid|os.ModeSetgid, dir, "d", "in"): 0o700,
		made(0o640, dir, "plain"):                               0o640,
		other:                                                   0o755 | os.ModeSetuid,
	}
	must(t, os.Mkdir(filepath.Join(dir, "shared"), 0o700))
	must(t, os.Chmod(filepath.Join(dir, "shared"), 0o770|os.ModeSetgid))
	want[filepath.Join(dir, "shared")] = 0o770 | os.ModeSetgid
	if uid == 0 {
		root := made(0o755, dir, "root's")
		must(t, os.Chown(root, 4242, 4242))
		must(t, os.Chmod(root, 0o755|os.ModeSetuid))
		want[root] = 0o755 | os.ModeSetuid
	}
	d, err := tree.Open(dir)
	must(t, err)
	defer d.Close()
	n, names, err := d.StripSetID(t.Context(), uid, 10)
	if err != nil || n != 4 || len(names) != 4 {
		t.Errorf("%d: %.2000q, %v", n, names, err)
	}
	for path, mode := range want {
		if info, err := os.Lstat(path); err != nil || info.Mode()&(os.ModePerm|os.ModeSetuid|os.ModeSetgid|os.ModeSticky) != mode {
			t.Errorf("%s: %v, %v, want %v", path, info, err, mode)
		}
	}
	hidden(0o755)
	if n, _, err := d.StripSetID(t.Context(), uid, 10); n != 0 || err != nil {
		t.Errorf("again: %d, %v", n, err)
	}
}

func TestOverlap(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"/a", "/a", true}, {"/a", "/a/b", true}, {"/a/b", "/a", true}, {"/", "/a", true},
		{"/a", "/ab", false}, {"/a/b", "/a/c", false},
	} {
		if got := tree.Overlap(tt.a, tt.b); got != tt.want {
			t.Errorf("Overlap(%s, %s) = %t", tt.a, tt.b, got)
		}
	}
}
