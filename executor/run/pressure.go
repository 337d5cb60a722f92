package run

import (
	"sync"
	"time"

	"sallyport/executor/tree"
)

const (
	// allLooked is the time in which every run notices that space is short and looks
	// at its workspace.
	allLooked = spacePause + spacePause/2
	// reliefPause is the time that the end of one run has to make room before another
	// run is ended.
	reliefPause = 5 * time.Second
)

// A pressure decides which runs end when a file system has less left than it must
// have: the one that has added most, and another where that has not helped within
// reliefPause; all of them, once it has less than half. For a run's open files that
// have no name are seen in nobody's workspace. The zero value is ready to use.
type pressure struct {
	mu       sync.Mutex           // guards what follows
	standing map[*disk]tree.Size  // what each run has added, as far as was seen
	devices  map[uint64]*shortage // that were short of space once
}

// A shortage is what is known of a file system that is or was short of space.
type shortage struct{ since, last, relieved time.Time }

func (p *pressure) join(d *disk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.standing == nil {
		p.standing, p.devices = map[*disk]tree.Size{}, map[uint64]*shortage{}
	}
	p.standing[d] = tree.Size{}
}

func (p *pressure) leave(d *disk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.standing, d)
}

// relieve ends runs on the file system of d, which has only that space left and has
// just been looked at.
func (p *pressure) relieve(d *disk, space tree.Space) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, here := p.standing[d]; !here {
		return // another's look has ended it
	}
	p.standing[d] = d.size.Minus(d.before)
	if d.x.Floor.short(space, 2) {
		for other := range p.standing {
			if other.device == d.device {
				p.end(other, space, "all runs that write to it were ended")
			}
		}
		return
	}
	if !p.ripe(d.device) {
		return
	}
	files := space.Bytes >= int64(d.x.Floor) // it is they that are short
	largest := d
	for other := range p.standing {
		if other.device == d.device && p.more(other, largest, files) {
			largest = other
		}
	}
	p.end(largest, space, "of the runs that write to it the one that has added most was ended")
}

// ripe notes that a file system is short of space, and reports whether it has been so
// long enough for one run to be ended. The caller holds the mutex.
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
	if now.Sub(s.since) < allLooked || now.Sub(s.relieved) < reliefPause {
		return false
	}
	s.relieved = now
	return true
}

// more reports whether a has added more than b.
func (p *pressure) more(a, b *disk, files bool) bool {
	if files {
		return p.standing[a].Entries > p.standing[b].Entries
	}
	return p.standing[a].Bytes > p.standing[b].Bytes
}

// end ends a run. The caller holds the mutex.
func (p *pressure) end(d *disk, space tree.Space, consequence string) {
	d.x.log.Warn("the disk is short of space and the run is ended", "freeBytes", space.Bytes, "freeFiles", space.Inodes, "addedBytes", p.standing[d].Bytes)
	d.x.fail(d.x.Floor.failure(space, consequence))
	delete(p.standing, d)
}
