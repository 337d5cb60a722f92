package store

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor/redact"
)

// archive makes a tar archive of headers; a regular file holds its own name.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	return archiveOf(t, headers, func(name string) string { return name })
}

func archiveOf(t testing.TB, headers []tar.Header, content func(name string) string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(content(h.Name)))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			io.WriteString(w, content(h.Name))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o4777} }

// hiding hides the value "a-secret-value".
func hiding(name func(string) string) Hide {
	r := redact.New(map[string]string{"K": "a-secret-value"})
	return Hide{Name: name, Search: func() Search { return r.Search() }}
}

var asIs = hiding(func(name string) string { return name })

var testLimits = ArtifactLimits{Bytes: 1 << 16, Files: 4}

// TestSaveArtifacts keeps good files and leaves out odd names.
//
// probe: F8
// oracle: the names that are kept, and the mode of their files
func TestSaveArtifacts(t *testing.T) {
	dir := t.TempDir()
	e := create(t, open(t, dir), "a")
	long := strings.Repeat("n", maxNameLength+1)
	kept, err := e.SaveArtifacts(bytes.NewReader(archive(t,
		tar.Header{Typeflag: tar.TypeDir, Name: "out/"}, file("out/a.txt"), file("b c.txt"), file("bell\a"), file(long),
	)), testLimits, asIs)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 4 || kept[0].Name != "out/a.txt" || kept[0].Size != 9 || kept[0].Skipped != "" || kept[1].Name != "b c.txt" {
		t.Errorf("kept = %+v", kept)
	}
	for _, a := range kept[2:] {
		if a.Skipped == "" || a.SHA256 != "" || len(a.Name) > 200 || strings.Contains(a.Name, "\a") {
			t.Errorf("skipped = %+v", a)
		}
	}
	f, err := e.Open("out/a.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	if data, _ := io.ReadAll(f); string(data) != "out/a.txt" || info.Mode() != 0o600 {
		t.Errorf("%q, mode %v", data, info.Mode())
	}
	for _, name := range []string{"../request.json", "/etc/passwd", "absent", "bell\a"} {
		if f, err := e.Open(name); err == nil {
			f.Close()
			t.Errorf("%q was opened", name)
		}
	}
}

// TestSaveArtifactsRefuses unpacks archives that reach for more.
//
// probe: F2, F3
// oracle: the directory of the store, in which nothing new is; a good archive beside
func TestSaveArtifactsRefuses(t *testing.T) {
	good := archive(t, file("good"))
	for _, tt := range []struct {
		name string
		data []byte
		kind string // empty for an archive that is only broken
	}{
		{"dots", archive(t, file("good"), file("../evil")), "traversal"},
		{"dots within", archive(t, file("good"), file("a/../../evil")), "traversal"},
		{"an absolute name", archive(t, file("good"), file("/evil")), "traversal"},
		{"a symbolic link", archive(t, file("good"), tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "/etc"}, file("l/evil")), "link"},
		{"a hard link", archive(t, file("good"), tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "good"}), "link"},
		{"a device", archive(t, file("good"), tar.Header{Typeflag: tar.TypeChar, Name: "d", Devmajor: 1, Devminor: 5}), "special"},
		{"a pipe", archive(t, file("good"), tar.Header{Typeflag: tar.TypeFifo, Name: "p"}), "special"},
		{"a name twice", archive(t, file("good"), file("good")), "duplicate"},
		{"a file below a file", archive(t, file("good"), file("good/evil")), "duplicate"},
		{"too many files", archive(t, file("a"), file("b"), file("c"), file("d"), file("e")), "limit"},
		{"too large", archive(t, file("good"), tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("x", 1<<16)}), "limit"},
		{"cut inside a file", archive(t, file("good"), file("other"))[:1024+512+2], ""},
		{"cut inside a header", good[:1024+100], ""},
		{"no archive", []byte(strings.Repeat("garbage ", 100)), ""},
	} {
		dir := t.TempDir()
		e := create(t, open(t, dir), "a")
		kept, err := e.SaveArtifacts(bytes.NewReader(tt.data), testLimits, asIs)
		var refused *ArchiveError
		if err == nil || errors.As(err, &refused) != (tt.kind != "") || refused != nil && refused.Kind != tt.kind {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.kind)
		}
		if _, err := os.Stat(filepath.Join(dir, "a", artifactsDir)); kept != nil || err == nil {
			t.Errorf("%s: something was kept: %v", tt.name, kept)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%s: in the store: %v", tt.name, left)
		}
	}
	if kept, err := create(t, open(t, t.TempDir()), "a").SaveArtifacts(bytes.NewReader(good), ArtifactLimits{}, asIs); err == nil {
		t.Errorf("zero limits took %v", kept)
	}
}

// FuzzSaveArtifacts checks that whatever an archive holds, nothing but regular
// files within the limits appears, and nothing outside.
//
// probe: F2, F3
// oracle: the directory of the store after each archive
func FuzzSaveArtifacts(f *testing.F) {
	f.Add(archive(f, file("a"), file("b/c")))
	f.Add(archive(f, file("../a")))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: ".."}, file("l/a")))
	f.Add(archive(f, tar.Header{Typeflag: tar.TypeReg, Name: "x", PAXRecords: map[string]string{"path": "../y"}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		e := create(t, open(t, dir), "a")
		kept, err := e.SaveArtifacts(bytes.NewReader(data), testLimits, asIs)
		if err != nil && kept != nil {
			t.Error("artifacts beside an error")
		}
		var size int64
		files := 0
		err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if !info.Mode().IsRegular() {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			rel, _ := filepath.Rel(filepath.Join(dir, "a"), path)
			if name, ok := strings.CutPrefix(rel, artifactsDir+"/"); ok {
				files, size = files+1, size+info.Size()
				if f, err := e.Open(name); err != nil {
					t.Errorf("%q cannot be opened: %v", name, err)
				} else {
					f.Close()
				}
			} else if rel != metaFile && rel != requestFile && rel != eventsFile {
				t.Errorf("%s appeared", path)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if files > testLimits.Files || size > testLimits.Bytes {
			t.Errorf("%d files of %d bytes", files, size)
		}
	})
}

// TestArtifactsWithSecrets: what a secret is in is not kept, in whatever form, nor is
// anything of it left on disk.
//
// oracle: the files on disk
func TestArtifactsWithSecrets(t *testing.T) {
	dir := t.TempDir()
	e := create(t, open(t, dir), "a")
	long := strings.Repeat("x", 100_000)
	files := map[string]string{
		"whole": "a-secret-value", "inside": long + "a-secret-value" + long, "hex": hex.EncodeToString([]byte("a-secret-value")),
		"part": "x-secret-value", "none": "another value, " + long, "empty": "",
	}
	var headers []tar.Header
	for name := range files {
		headers = append(headers, file("d/"+name))
	}
	data := archiveOf(t, headers, func(name string) string { return files[strings.TrimPrefix(name, "d/")] })
	kept, err := e.SaveArtifacts(bytes.NewReader(data), ArtifactLimits{Bytes: 1 << 20, Files: 100}, asIs)
	if err != nil || len(kept) != len(files) {
		t.Fatal(kept, err)
	}
	for _, a := range kept {
		_, err := os.Stat(filepath.Join(dir, "a", artifactsDir, a.Name))
		name := strings.TrimPrefix(a.Name, "d/")
		clean := name == "none" || name == "empty"
		if clean != (err == nil) || clean != (a.Skipped == "") || clean != (a.SHA256 != "") || clean && a.Size != int64(len(files[name])) {
			t.Errorf("%+v, on disk: %v", a, err)
		}
	}
}

// TestRenamedArtifacts keeps files in whose names there is a secret.
//
// oracle: the names on disk
func TestRenamedArtifacts(t *testing.T) {
	dir := t.TempDir()
	name := func(name string) string { return strings.ReplaceAll(name, "secret", "[K]") }
	limits := ArtifactLimits{Bytes: 1 << 16, Files: 100}
	e := create(t, open(t, dir), "a")
	kept, err := e.SaveArtifacts(bytes.NewReader(archive(t,
		file("secret/a.txt"), file("secret/b.txt"), file("[K]/b.txt"), file("x[K]"), file("xsecret"), file("secret\a"), file("y[K]"), file("ysecret/z"),
		file("wsecret/z"), file("w[K]"), file("vsecret"), file("v[K]/z"),
	)), limits, hiding(name))
	if err != nil {
		t.Fatal(err)
	}
	var names, skipped []string
	for _, a := range kept {
		if strings.Contains(a.Name+a.Skipped, "secret") && !strings.HasPrefix(a.Skipped, "a secret was") {
			t.Errorf("kept %+v", a)
		}
		if a.Skipped != "" {
			skipped = append(skipped, a.Name)
			continue
		}
		names = append(names, a.Name)
		f, err := e.Open(a.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		f.Close()
	}
	if got := strings.Join(names, " "); got != "[K]/a.txt [K]/b.txt x[K] y[K] w[K]/z v[K]" {
		t.Errorf("kept %q", got)
	}
	if got := strings.Join(skipped, " "); got != `[K]/b.txt x[K] "[K]\a" y[K]/z w[K] v[K]/z` {
		t.Errorf("skipped %q", got)
	}
	filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || strings.Contains(path, "secret") {
			t.Errorf("%s, %v", path, err)
		}
		return nil
	})
	e = create(t, open(t, t.TempDir()), "b")
	_, err = e.SaveArtifacts(bytes.NewReader(archive(t, tar.Header{Typeflag: tar.TypeSymlink, Name: strings.Repeat("x", 125) + "secret", Linkname: "y"})), limits, hiding(name))
	if err == nil || strings.Contains(err.Error(), "sec") {
		t.Errorf("a link: %v", err)
	}
	// Without a secret a name that comes twice is what it was.
	_, err = create(t, open(t, t.TempDir()), "c").SaveArtifacts(bytes.NewReader(archive(t, file("secret"), file("a"), file("a"))), limits, hiding(name))
	if twice := (*ArchiveError)(nil); !errors.As(err, &twice) || twice.Kind != "duplicate" {
		t.Errorf("twice: %v", err)
	}
}
