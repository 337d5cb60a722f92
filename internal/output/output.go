// Package output keeps what a program or a logger writes, for tests that read it
// while it is still being written.
package output

import (
	"bytes"
	"sync"
)

// A Buffer is a bytes.Buffer for several goroutines. Its zero value is empty.
type Buffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

// Write appends p. It returns no error.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is all that has been written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
