package tree

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Measure adds up what the directory holds and stops once that exceeds the limit.
// What vanishes or cannot be read meanwhile counts as far as it was seen, and of a
// mount only its directory. With an error (ErrDeep, ErrMoved, that of ctx) comes
// what was found so far.
func (d *Dir) Measure(ctx context.Context, limit Size) (Size, error) {
	return d.walk(ctx, &measurement{limit: limit})
}

func (d *Dir) walk(ctx context.Context, m *measurement) (Size, error) {
	defer m.close()
	fd, err := openDir(d.fd, ".")
	if err == nil {
		err = m.enter(fd)
	}
	if err == nil {
		err = m.run(ctx)
	}
	if err != nil {
		return m.sum, fmt.Errorf("measure a directory: %w", err)
	}
	return m.sum, nil
}

type measurement struct {
	levels
	limit, sum Size
	deep       bool // deeper than MaxDepth as well
	// see is told of each entry; it may be nil.
	see func(dir int, name string, st *unix.Stat_t)
}

func (m *measurement) run(ctx context.Context) error {
	for m.depth() > 0 && !m.sum.Exceeds(m.limit) {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, ok, err := m.top().next()
		if err != nil {
			return err
		}
		if !ok {
			if err := m.leave(); err != nil {
				return err
			}
			continue
		}
		dir := m.top().fd
		m.top().pass(e) // first, as it may be shut while its child is open
		if err := m.visit(dir, e); err != nil {
			return err
		}
	}
	return nil
}

// visit counts one entry and goes into it if it is a directory.
func (m *measurement) visit(dir int, e dirent) error {
	var st unix.Stat_t
	if unix.Fstatat(dir, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil // gone
	}
	m.sum.Entries++
	m.sum.Bytes += st.Blocks * 512
	if m.see != nil {
		m.see(dir, e.name, &st)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || uint64(st.Dev) != m.dev {
		return nil
	}
	if m.depth() > MaxDepth && !m.deep {
		return ErrDeep
	}
	fd, err := openDir(dir, e.name)
	if err == nil {
		err = m.enter(fd)
	}
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EIO):
		return err // of ours, not of the tree's
	}
	return nil // gone, exchanged, or not readable: it was counted
}
