package place

import (
	"sync"
	"time"

	"sallyport/executor/tree"
)

const (
	// spacePause is the time between two questions for the space that is left.
	spacePause = time.Second
	// allSeen is the time in which every task notices that space is short and has its
	// workspace measured.
	allSeen = spacePause + spacePause/2
	// reliefPause is the time that the end of one task has to make room before another
	// task is ended.
	reliefPause = 5 * time.Second
)

// A pressure decides which tasks end when a file system has less left than it must
// have: the one that has added most, and another where that has not helped within
// reliefPause; all of them, once it has less than half. For open files that have no name
// are seen in nobody's workspace. The zero value is ready to use.
type pressure struct {
	mu      sync.Mutex           // guards what follows, and what the writers have added
	writers map[*writer]bool     // true
	devices map[uint64]*shortage // that were short of space once
}

// A writer is a task that writes to a file system.
type writer struct {
	device uint64
	end    func(space tree.Space, consequence string)
	added  tree.Size // as far as was seen
}

// A shortage is what is known of a file system that is or was short of space.
type shortage struct{ since, last, relieved time.Time }

func (p *pressure) join(w *writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writers == nil {
		p.writers, p.devices = map[*writer]bool{}, map[uint64]*shortage{}
	}
	p.writers[w] = true
}

func (p *pressure) leave(w *writer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.writers, w)
}

// relieve ends tasks on the file system of w, which has only that space left, less than
// floor, and where w has just been found to have added that much.
func (p *pressure) relieve(w *writer, added tree.Size, space tree.Space, floor Floor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.writers[w] {
		return // on behalf of another it has been ended
	}
	w.added = added
	if floor.short(space, 2) {
		for other := range p.writers {
			if other.device == w.device {
				p.end(other, space, "all runs that write to it were ended")
			}
		}
		return
	}
	if !p.ripe(w.device) {
		return
	}
	files := space.Bytes >= int64(floor) // it is they that are short
	largest := w
	for other := range p.writers {
		if other.device == w.device && other.addedMore(largest, files) {
			largest = other
		}
	}
	p.end(largest, space, "of the runs that write to it the one that has added most was ended")
}

// ripe notes that a file system is short of space, and reports whether it has been so
// long enough for one task to be ended. The caller holds the mutex.
func (p *pressure) ripe(device uint64) bool {
	s := p.devices[device]
	if s == nil {
		s = &shortage{}
		p.devices[device] = s
	}
	now := time.Now()
	if now.Sub(s.last) > reliefPause {
		s.since = now
	}
	s.last = now
	if now.Sub(s.since) < allSeen || now.Sub(s.relieved) < reliefPause {
		return false
	}
	s.relieved = now
	return true
}

func (w *writer) addedMore(than *writer, files bool) bool {
	if files {
		return w.added.Entries > than.added.Entries
	}
	return w.added.Bytes > than.added.Bytes
}

// end ends a task. The caller holds the mutex.
func (p *pressure) end(w *writer, space tree.Space, consequence string) {
	w.end(space, consequence)
	delete(p.writers, w)
}
