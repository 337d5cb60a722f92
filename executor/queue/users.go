package queue

// noUser is the index of no user.
const noUser = -1

// users are the user ids of sandboxes. The kernel counts inotify instances, pending
// signals and the like for each user, over all containers, so jobs at once that
// shared one could starve each other of them. Where there are fewer users than jobs, the
// last one is shared.
type users struct {
	first int
	lent  []bool // by the id, from first on; that of the last is never set
}

func newUsers(first, number int) users { return users{first: first, lent: make([]bool, number)} }

// lend returns the lowest user that no other job has, counted from first.
func (u *users) lend() int {
	last := len(u.lent) - 1
	for i, lent := range u.lent[:last] {
		if !lent {
			u.lent[i] = true
			return i
		}
	}
	return last
}

func (u *users) giveBack(i int) {
	if i != noUser && i != len(u.lent)-1 {
		u.lent[i] = false
	}
}
