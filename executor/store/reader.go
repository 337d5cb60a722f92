package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"sallyport/executor/api"
)

// A Line is one event as it is stored: JSON, with the newline at its end.
type Line struct {
	Seq  int64
	JSON []byte // valid until the next Line is taken
}

// Type is the event's type.
func (l Line) Type() api.EventType {
	// The type comes early in the line; see api.Event.
	_, rest, ok := bytes.Cut(l.JSON, []byte(`"type":"`))
	if !ok {
		return ""
	}
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	return api.EventType(name)
}

// Events yields the events with a number above after, then ends or, if follow is
// set, waits for more until the one with the result has been yielded or ctx ends.
func (e *Entry) Events(ctx context.Context, after int64, follow bool) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		f, err := e.store.root.Open(e.path(eventsFile))
		if err != nil {
			yield(Line{}, fmt.Errorf("open the events of %s: %w", e.Meta.ID, err))
			return
		}
		defer f.Close()
		var seq, offset int64
		b := bufio.NewReaderSize(nil, 16<<10)
		for {
			size, finished, changed := e.state()
			b.Reset(io.NewSectionReader(f, offset, size-offset))
			for line, err := range lines(b) {
				if err != nil {
					yield(Line{}, fmt.Errorf("read the events of %s: %w", e.Meta.ID, err))
					return
				}
				seq++
				offset += int64(len(line))
				if seq > after && !yield(Line{seq, line}, nil) {
					return
				}
			}
			if finished {
				if last := e.unwritten(); last != nil && seq+1 > after {
					yield(Line{seq + 1, last}, nil)
				}
				return
			}
			if !follow {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(Line{}, context.Cause(ctx))
				return
			}
		}
	}
}

func (e *Entry) state() (size int64, finished bool, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.size, e.Finished(), e.changed
}

// unwritten is the line of the result where the disk did not take it, or nil.
func (e *Entry) unwritten() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// lines yields the whole lines of b, each with its newline; a part of a line at
// the end is left out.
func lines(b *bufio.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		var line []byte
		for {
			part, err := b.ReadSlice('\n')
			line = append(line, part...)
			switch {
			case errors.Is(err, bufio.ErrBufferFull):
				continue
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(nil, err)
				return
			}
			if !yield(line, nil) {
				return
			}
			line = line[:0]
		}
	}
}

// Open opens an artifact by its name.
func (e *Entry) Open(name string) (*os.File, error) {
	dir, err := e.store.root.OpenRoot(e.path(artifactsDir))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Open(name)
}
