package pid1

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

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
	job.Limits = wire.Limits{ArtifactBytes: 50_000, ArtifactFiles: 10}
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
	job.Limits = wire.Limits{}
	if got := do(t, s, job, ""); got.artifacts.Len() > 0 || got.ArtifactsSkipped != nil {
		t.Errorf("%d bytes without a limit, %v", got.artifacts.Len(), got.ArtifactsSkipped)
	}
}
