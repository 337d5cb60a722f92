// Package artifacts packs the files of a workspace that a job's globs name, as a tar
// stream. Its files are an agent's: no symbolic link is followed, nothing is run, and
// names, depth, bytes and the list of what was left out are bounded.
package artifacts

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"sallyport/entrypoint/wire"
)

const (
	// maxEntries bounds the names that a search for artifacts looks at, maxDepth
	// how deep it goes: an agent can make more of both than fit in memory.
	maxEntries = 200_000
	maxDepth   = 100
	// tarBlock is the unit of a tar stream, tarEnd what closes one, in bytes.
	tarBlock, tarEnd = 512, 2 * 512
)

// Send writes a tar stream of the regular files below dir that match a
// glob, sorted by name, and lists what matched and was left out. No symbolic link
// is followed. A file with several names is sent under each that matches: the
// agent could have copied what it could link. It must run after every process of
// the job has ended, so that nothing changes under it.
func Send(ctx context.Context, dir int, patterns wire.Globs, limits wire.Limits, w io.Writer) ([]wire.Skipped, error) {
	if limits.ArtifactBytes < tarEnd {
		return nil, fmt.Errorf("%d bytes cannot hold an archive", limits.ArtifactBytes)
	}
	out := bufio.NewWriterSize(w, wire.ChunkSize)
	c := &collector{ctx: ctx, globs: patterns, limits: limits, tw: tar.NewWriter(out), left: limits.ArtifactBytes - tarEnd}
	err := c.walk(dir, "", 0)
	if err == nil {
		err = errors.Join(c.tw.Close(), out.Flush())
	}
	return c.skipped, err
}

// A collector walks a directory and fills the tar stream.
type collector struct {
	ctx    context.Context
	globs  wire.Globs
	limits wire.Limits

	tw      *tar.Writer
	left    int64 // bytes of the stream
	files   int   // sent
	entries int   // seen

	skipped      []wire.Skipped
	skippedBytes int
}

// skip notes a file that is left out.
func (c *collector) skip(name, reason string) {
	c.skippedBytes += len(name) + len(reason)
	if c.skippedBytes <= wire.MaxSkipped {
		c.skipped = append(c.skipped, wire.Skipped{Name: name, Reason: reason})
	} else if last := (wire.Skipped{Reason: "the list is longer"}); c.skipped[len(c.skipped)-1] != last {
		c.skipped = append(c.skipped, last)
	}
}

// walk handles the entries of one opened directory in the order of their names.
func (c *collector) walk(dir int, prefix string, depth int) error {
	names, err := c.list(dir)
	if err != nil {
		return fmt.Errorf("list the directory %q: %w", prefix, err)
	}
	for _, name := range names {
		if err := c.ctx.Err(); err != nil {
			return errors.New("ended by a signal")
		}
		if err := c.visit(dir, name, prefix+name, depth); err != nil {
			return err
		}
	}
	return nil
}

// list returns the sorted names in a directory, whose descriptor it leaves open.
func (c *collector) list(dir int) ([]string, error) {
	again, err := unix.Openat(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(again), ".")
	defer f.Close()
	var names []string
	for {
		some, err := f.Readdirnames(1024)
		names = append(names, some...)
		if c.entries += len(some); c.entries > maxEntries {
			return nil, fmt.Errorf("more than %d entries to look at", maxEntries)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// visit handles one entry of the directory dir.
func (c *collector) visit(dir int, base, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(dir, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		c.skip(name, "unreadable: "+err.Error())
		return nil
	}
	matched := c.globs.Match(name)
	possible, outright := c.globs.Below(name)
	switch kind := st.Mode & unix.S_IFMT; {
	case kind == unix.S_IFDIR && possible:
		return c.enter(dir, base, name, depth)
	case kind == unix.S_IFLNK && outright:
		c.skip(name, "symbolic link")
	case !matched:
	case kind == unix.S_IFREG:
		return c.send(dir, base, name)
	default:
		c.skip(name, describeKind(kind))
	}
	return nil
}

func describeKind(kind uint32) string {
	switch kind {
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFDIR:
		return "directory"
	case unix.S_IFIFO:
		return "named pipe"
	case unix.S_IFSOCK:
		return "socket"
	}
	return "device"
}

func (c *collector) enter(dir int, base, name string, depth int) error {
	if depth >= maxDepth {
		c.skip(name, fmt.Sprintf("more than %d directories deep", maxDepth))
		return nil
	}
	sub, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		c.skip(name, "unreadable: "+err.Error())
		return nil
	}
	defer unix.Close(sub)
	return c.walk(sub, name+"/", depth+1)
}

// send puts one regular file into the stream, if it fits.
func (c *collector) send(dir int, base, name string) error {
	if !utf8.ValidString(name) {
		c.skip(name, "name is not UTF-8")
		return nil
	}
	fd, err := unix.Openat(dir, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		c.skip(name, "unreadable: "+err.Error())
		return nil
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("read %q: %w", name, err)
	case !info.Mode().IsRegular():
		c.skip(name, "not a regular file")
		return nil
	case c.files >= c.limits.ArtifactFiles:
		c.skip(name, fmt.Sprintf("more than %d files", c.limits.ArtifactFiles))
		return nil
	case info.Size() > c.left-headerRoom(name)-tarBlock:
		c.skip(name, fmt.Sprintf("too large: %d bytes, room for %d", info.Size(), max(0, c.left-headerRoom(name)-tarBlock)))
		return nil
	}
	return c.add(f, name, info)
}

// headerRoom is an upper bound of what a file's headers take: a block of its own
// and, for a long or unusual name, a PAX record with its header.
func headerRoom(name string) int64 { return 4*tarBlock + int64(len(name)) }

func (c *collector) add(f *os.File, name string, info os.FileInfo) error {
	h := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Size:     info.Size(),
		Mode:     int64(info.Mode().Perm()),
		ModTime:  info.ModTime().Truncate(time.Second),
		Format:   tar.FormatPAX,
	}
	if err := c.tw.WriteHeader(h); err != nil {
		return fmt.Errorf("write the header of %q: %w", name, err)
	}
	if _, err := io.CopyN(c.tw, cancelReader{c.ctx, f}, info.Size()); err != nil {
		return fmt.Errorf("read %q: %w", name, err)
	}
	c.files++
	c.left -= headerRoom(name) + (info.Size()+tarBlock-1)/tarBlock*tarBlock
	return nil
}

// A cancelReader ends with its context.
type cancelReader struct {
	ctx context.Context
	r   io.Reader
}

func (r cancelReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, errors.New("ended by a signal")
	}
	return r.r.Read(b)
}
