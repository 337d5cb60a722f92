package store

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"sallyport/executor/api"
)

// ArtifactLimits bound what is taken from one archive. The zero value takes
// nothing.
type ArtifactLimits struct {
	Bytes int64 // of all files together
	Files int
}

// Hide takes secrets out of artifacts.
type Hide struct {
	Name   func(string) string // a name without them
	Search func() Search       // for them in one file
}

// A Search looks for secrets in what is written to it, and says in the end whether there
// was one.
type Search interface {
	io.Writer
	Found() bool
}

// maxNameLength is the longest name of an artifact, in bytes, maxDepth the
// most directories that it lies in.
const (
	maxNameLength = 512
	maxDepth      = 32
)

// An ArchiveError says that an archive holds what no honest sender puts into
// it. Nothing of it was kept.
type ArchiveError struct {
	Kind   string // traversal, link, special, duplicate or limit
	Detail string
}

func (e *ArchiveError) Error() string { return "artifact archive refused: " + e.Detail }

// SaveArtifacts reads a tar archive that was made in a sandbox and keeps the
// regular files in it; a file whose name is unfit is listed as skipped. Anything
// else in the archive than regular files and directories, a name that leads
// elsewhere, a name that comes twice or more than the limits refuses the archive
// as a whole with an *ArchiveError. A file is kept under what hide makes of its
// name, the first of those that get the same one, and not at all if there is a secret in
// it. It may be called once.
func (e *Entry) SaveArtifacts(r io.Reader, lim ArtifactLimits, hide Hide) ([]api.Artifact, error) {
	kept, err := e.saveArtifacts(r, lim, hide)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep the artifacts of %s: %w", e.Meta.ID, err), e.store.root.RemoveAll(e.path(artifactsDir)))
	}
	return kept, nil
}

func (e *Entry) saveArtifacts(r io.Reader, lim ArtifactLimits, hide Hide) ([]api.Artifact, error) {
	if err := e.store.root.Mkdir(e.path(artifactsDir), 0o700); err != nil {
		return nil, err
	}
	dir, err := e.store.root.OpenRoot(e.path(artifactsDir))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var kept []api.Artifact
	renamed := names{} // those that hide made
	archive := tar.NewReader(r)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return kept, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the archive: %w", err)
		}
		if h.Typeflag == tar.TypeDir {
			continue // directories are made as files need them
		}
		name := hide.Name(h.Name)
		if err := judge(h, name, lim); err != nil {
			return nil, err
		}
		lim.Bytes -= h.Size
		lim.Files--
		other := name != h.Name
		h.Name = name
		if why := unfit(h.Name); why != "" {
			kept = append(kept, api.Artifact{Name: fmt.Sprintf("%.128q", h.Name), Skipped: why})
			continue
		}
		a, err := write(dir, h, archive, hide.Search())
		if twice := (*ArchiveError)(nil); errors.As(err, &twice) && (other || renamed.has(name)) {
			a, err = api.Artifact{Name: name, Skipped: "a secret was taken out of the name, and another file has the one without"}, nil
		}
		if err != nil {
			return nil, err
		}
		if other {
			renamed.add(name)
		}
		kept = append(kept, a)
	}
}

// names are those of files, and of the directories in which they lie.
type names map[string]bool

func (n names) add(name string) {
	for ; name != "."; name = path.Dir(name) {
		n[name] = true
	}
}

// has reports whether one of them is name, or a directory in which it lies.
func (n names) has(name string) bool {
	for ; name != "."; name = path.Dir(name) {
		if n[name] {
			return true
		}
	}
	return false
}

// judge refuses a header that no honest sender makes: PID 1 sends only regular
// files that it found under the workspace, within the limits. shown is the name as it
// may be told.
func judge(h *tar.Header, shown string, lim ArtifactLimits) error {
	refuse := func(kind, format string, args ...any) error {
		return &ArchiveError{kind, fmt.Sprintf(format, args...)}
	}
	switch h.Typeflag {
	case tar.TypeReg:
	case tar.TypeLink, tar.TypeSymlink:
		return refuse("link", "%.128q is a link", shown)
	default:
		return refuse("special", "%.128q is no regular file (type %q)", shown, h.Typeflag)
	}
	switch {
	case strings.HasPrefix(h.Name, "/") || slices.Contains(strings.Split(h.Name, "/"), ".."):
		return refuse("traversal", "%.128q leads out of the workspace", shown)
	case lim.Files <= 0:
		return refuse("limit", "it has more files than were asked for")
	case h.Size > lim.Bytes:
		return refuse("limit", "%.128q is larger than the %d bytes that are left", shown, lim.Bytes)
	}
	return nil
}

// unfit says why a file cannot be kept under its name, or nothing.
func unfit(name string) string {
	switch {
	case len(name) > maxNameLength:
		return fmt.Sprintf("the name is longer than %d bytes", maxNameLength)
	case strings.Count(name, "/") > maxDepth:
		return fmt.Sprintf("it lies more than %d directories deep", maxDepth)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "the name holds unprintable characters"
	case !fs.ValidPath(name) || name == ".":
		return "the name is not in its shortest form"
	}
	return ""
}

// write writes one file. That it does not exist yet is part of the defence: no
// entry of an archive can change what another has made.
func write(dir *os.Root, h *tar.Header, content io.Reader, search Search) (api.Artifact, error) {
	if parent := path.Dir(h.Name); parent != "." {
		switch err := dir.MkdirAll(parent, 0o700); {
		case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
			return api.Artifact{}, &ArchiveError{"duplicate", fmt.Sprintf("%.128q lies below a file", h.Name)}
		case err != nil:
			return api.Artifact{}, err
		}
	}
	f, err := dir.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return api.Artifact{}, &ArchiveError{"duplicate", fmt.Sprintf("%.128q comes twice", h.Name)}
	}
	if err != nil {
		return api.Artifact{}, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum, search), content)
	if err == nil && search.Found() {
		err = dir.Remove(h.Name)
		n = -1
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return api.Artifact{}, fmt.Errorf("write %q: %w", h.Name, err)
	}
	if n < 0 {
		return api.Artifact{Name: h.Name, Skipped: "there is a secret in it"}, nil
	}
	return api.Artifact{Name: h.Name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}
