package queue

import "time"

// A flow is what shares places with others by weight: the jobs of a tenant, and within
// them those of a priority. Who has been served least, by weight, is next (start-time
// fair queueing, Goyal, Vin and Cheng, 1996), where service is how long places were held.
// That is not known when a job begins: what such jobs took so far is charged then, and put
// right when it leaves.
type flow struct {
	weight float64
	served float64 // seconds, over the weight
	jobs   int     // that were admitted and have not left
	mean   float64 // seconds that a job holds its place, by those that left last
	flows  flows   // within it
}

// flows are those that share the same places.
type flows struct {
	by map[any]*flow
	// now is how far the one that was served last had come: who has had no job for a time
	// begins there, so that nobody saves up for later.
	now float64
}

// The first guess of how long a job holds its place, in seconds, and the weight of a newer
// one in the mean.
const (
	firstMean = 30
	newerPart = .2
)

// enter notes a job of the flow that has the key.
func (fs *flows) enter(key any, weight float64) *flow {
	if fs.by == nil {
		fs.by = map[any]*flow{}
	}
	f := fs.by[key]
	if f == nil {
		f = &flow{mean: firstMean}
		fs.by[key] = f
	}
	if f.weight = weight; f.jobs == 0 {
		f.served = max(f.served, fs.now)
	}
	f.jobs++
	return f
}

// leave forgets flows that owe nothing.
func (fs *flows) leave(f *flow) {
	f.jobs--
	for key, other := range fs.by {
		if other.jobs == 0 && other.served <= fs.now {
			delete(fs.by, key)
		}
	}
}

// charge has a job of the flow begin, and returns what it was charged, in seconds.
func (fs *flows) charge(f *flow, seconds float64) {
	fs.now = max(fs.now, f.served)
	f.served += seconds / f.weight
}

// settle puts right what was charged for a job that has left its place.
func (f *flow) settle(charged, held float64) {
	f.served += (held - charged) / f.weight
	f.mean += newerPart * (held - f.mean)
}

// priorityFactor is how much more of its tenant's places a priority gets than the next
// lower one, where both wait: enough to go first mostly, and too little to starve anybody.
const priorityFactor = 4

// weigh is the weight of a priority.
func weigh(priority int) float64 {
	w := 1.0
	for range min(max(priority, 0), MaxPriority) {
		w *= priorityFactor
	}
	return w
}

// next is the waiting job that may begin and is next, nil for none. q.mu is held.
func (q *Queue) next() *Ticket {
	var best *Ticket
	for _, t := range q.tickets { // the oldest first
		if !t.begun && q.mayBegin(t) && (best == nil || t.before(best)) {
			best = t
		}
	}
	return best
}

// before reports whether t is next rather than an older ticket.
func (t *Ticket) before(older *Ticket) bool {
	if t.tenant != older.tenant {
		return t.tenant.served < older.tenant.served
	}
	if t.class.served != older.class.served {
		return t.class.served < older.class.served
	}
	return t.job.Priority > older.job.Priority
}

// A Place is where a job that waits stands.
type Place struct {
	// Ahead is how many of those that wait would begin before it.
	Ahead int
	// Wait is about how long it waits, by what jobs of the same tenants took.
	Wait time.Duration
}

// Place says where the job stands among those that wait; false if it does not wait.
// Jobs that come later may overtake it.
func (t *Ticket) Place() (Place, bool) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.begun || t.left {
		return Place{}, false
	}
	ahead, seconds := q.ahead(t)
	return Place{Ahead: ahead, Wait: time.Duration(seconds / float64(q.running) * float64(time.Second))}, true
}

// ahead plays the queue on, on copies, until t would begin: how many begin before, and the
// seconds that they and half of those that run hold places. q.mu is held.
func (q *Queue) ahead(t *Ticket) (n int, seconds float64) {
	copies := map[*flow]*flow{}
	copied := func(f *flow) *flow {
		if copies[f] == nil {
			c := *f
			copies[f] = &c
		}
		return copies[f]
	}
	var waiting []*Ticket
	for _, other := range q.tickets {
		if other.begun {
			seconds += other.tenant.mean / 2
			continue
		}
		c := *other
		c.tenant, c.class = copied(other.tenant), copied(other.class)
		waiting = append(waiting, &c)
	}
	for len(waiting) > 0 {
		best := 0
		for i, other := range waiting {
			if other.before(waiting[best]) {
				best = i
			}
		}
		c := waiting[best]
		if c.place == t.place {
			break
		}
		c.tenant.served += c.tenant.mean / c.tenant.weight
		c.class.served += c.tenant.mean / c.class.weight
		seconds += c.tenant.mean
		n++
		waiting = append(waiting[:best], waiting[best+1:]...)
	}
	return n, seconds
}
