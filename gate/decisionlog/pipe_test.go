package decisionlog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Lines that several write to a pipe at a time arrive whole, also those that do not
// fit into it and so wait for its reader. Whoever made the pipe finds it as it was.
func TestOnPipe(t *testing.T) {
	const writers, lines = 8, 40
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// As standard output is: a descriptor that waits.
	fd, err := unix.Dup(int(out.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	out = os.NewFile(uintptr(fd), "out")
	w := OnPipe(out)
	if _, ok := w.(*pipe); !ok {
		t.Fatalf("a pipe is written by %T", w)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x of the pipe, %v", flags, err)
	}
	var writing sync.WaitGroup
	for i := range writers {
		writing.Go(func() {
			for n := range lines {
				line := strings.Repeat(string(rune('a'+i)), 1+n*1000) + "\n"
				if wrote, err := w.Write([]byte(line)); err != nil || wrote != len(line) {
					t.Errorf("%d of %d bytes written, %v", wrote, len(line), err)
				}
			}
		})
	}
	go func() {
		writing.Wait()
		out.Close()
		unix.Close(w.(*pipe).quick)
	}()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	next := make(map[byte]int)
	for line := range strings.Lines(string(all)) {
		n := next[line[0]]
		if want := strings.Repeat(line[:1], 1+n*1000) + "\n"; line != want {
			t.Fatalf("line %d of %q has %d bytes and %q at its end", n, line[0], len(line), line[max(0, len(line)-5):])
		}
		next[line[0]]++
	}
	for i := range writers {
		if n := next[byte('a'+i)]; n != lines {
			t.Errorf("%d lines of writer %d, want %d", n, i, lines)
		}
	}
}

// A pipe that nobody reads is an error, and what is no pipe is written as it is: a
// call for a file may wait for its disk, and the runtime must know.
func TestOnPipeFails(t *testing.T) {
	r, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	w := OnPipe(out)
	defer unix.Close(w.(*pipe).quick)
	if n, err := w.Write([]byte("control\n")); n != 8 || err != nil {
		t.Errorf("control: %d bytes, %v", n, err)
	}
	r.Close()
	if n, err := w.Write([]byte("lost\n")); n != 0 || !errors.Is(err, unix.EPIPE) {
		t.Errorf("%d bytes written to nobody, %v", n, err)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, out := range []io.Writer{file, new(bytes.Buffer)} {
		if w := OnPipe(out); w != out {
			t.Errorf("%T is written by %T", out, w)
		}
	}
}
