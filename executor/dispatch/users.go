package dispatch

import (
	"sync"

	"sallyport/executor/plan"
)

// users are the user ids of sandboxes. The kernel counts inotify instances, pending
// signals and the like for each user, over all containers, so runs at once that
// shared one could starve each other of them.
type users struct {
	first int

	mu    sync.Mutex // guards taken
	taken []bool
}

func newUsers(first, number int) *users { return &users{first: first, taken: make([]bool, number)} }

// lend makes a run that brings no workspace run as the lowest user that no other run
// has, and returns what gives that back. Where there are fewer users than runs, the
// last one is shared. In a caller's workspace a run is the owner, whoever else is.
func (u *users) lend(p *plan.Plan) (giveBack func()) {
	if p.Dir != "" {
		return func() {}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	last := len(u.taken) - 1
	for i, taken := range u.taken[:last] {
		if !taken {
			u.taken[i] = true
			p.UID, p.GID = u.first+i, u.first+i
			return func() { u.free(i) }
		}
	}
	p.UID, p.GID = u.first+last, u.first+last
	return func() {}
}

func (u *users) free(i int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taken[i] = false
}
