// Package queue says which executions may run now and which have to wait. It bounds
// those that run and those that wait, of all tenants and of each, lets them begin in the
// order of their arrival as far as their tenants' quotas go, keeps apart those that use
// the same directories, and lends each one a user id. It has no
// clock and no goroutine, and knows nothing of requests: what it answers follows from
// what it was asked before.
//
//	ticket, refusal := q.Admit(job)
//	<-ticket.Begun() // or the end of who waits
//	defer ticket.Leave()
package queue

import "sync"

// A Job is an execution that asks for a place.
type Job struct {
	ID     string
	Tenant string
	Quota  *Quota // of its tenant's jobs; if nil, none
	Directories
}

// A Quota bounds the jobs of one tenant: how many run, and how many wait.
type Quota struct{ Running, Waiting int }

// A Queue admits jobs. It is safe for concurrent use.
type Queue struct {
	running, waiting int // at most

	mu      sync.Mutex // guards what follows
	tickets []*Ticket  // of the jobs that were admitted and have not left, the oldest first
	begun   int        // of those
	tenants map[string]count
	users   users
	closed  bool
}

// A count is of a tenant's jobs.
type count struct{ running, waiting int }

// New makes a queue for so many jobs that run and wait at once. Their user ids begin at
// firstUser; there are as many as users says, and at least one.
func New(running, waiting, firstUser, users int) *Queue {
	return &Queue{running: running, waiting: waiting, users: newUsers(firstUser, users), tenants: map[string]count{}}
}

// A Ticket is the place of a job that was admitted.
type Ticket struct {
	job   Job
	queue *Queue
	place chan struct{} // closed when the job may begin

	// Guarded by the queue:
	user        int // that was lent, noUser for none
	begun, left bool
}

// A Reason is why a job was not admitted.
type Reason int

// The reasons.
const (
	Closed  Reason = iota + 1 // no job is admitted any more
	Full                      // as many as may run and wait do
	Overlap                   // another job uses a directory that the job asks for
	Quotas                    // as many of the tenant's run and wait as may
)

// A Refusal says why a job was not admitted.
type Refusal struct {
	Reason Reason
	// Limit is how many may run and wait, where the queue is Full, and how many of the
	// tenant's may wait, where it is the Quotas.
	Limit int
	// Use is what the job wants of the directory that overlaps, and Holder the ID of the
	// job that uses it, where there is an Overlap; Tenant is whose it is.
	Use            Use
	Holder, Tenant string
}

// Admit gives a job a ticket, or says why not. Whoever gets one calls its Leave.
func (q *Queue) Admit(job Job) (*Ticket, *Refusal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, &Refusal{Reason: Closed}
	}
	if limit := q.running + q.waiting; len(q.tickets) >= limit {
		return nil, &Refusal{Reason: Full, Limit: limit}
	}
	for _, t := range q.tickets {
		if use, ok := t.job.excludes(job.Directories); ok {
			return nil, &Refusal{Reason: Overlap, Use: use, Holder: t.job.ID, Tenant: t.job.Tenant}
		}
	}
	t := &Ticket{job: job, queue: q, place: make(chan struct{}), user: noUser}
	q.tickets = append(q.tickets, t)
	q.add(job.Tenant, 0, 1)
	q.begin()
	if quota := job.Quota; quota != nil && !t.begun && q.tenants[job.Tenant].waiting > quota.Waiting {
		q.tickets = q.tickets[:len(q.tickets)-1]
		q.add(job.Tenant, 0, -1)
		return nil, &Refusal{Reason: Quotas, Limit: quota.Waiting}
	}
	return t, nil
}

// add counts a tenant's jobs. q.mu is held.
func (q *Queue) add(tenant string, running, waiting int) {
	c := q.tenants[tenant]
	c = count{c.running + running, c.waiting + waiting}
	if q.tenants[tenant] = c; c == (count{}) {
		delete(q.tenants, tenant)
	}
}

// begin gives free places to those that have waited longest. q.mu is held.
func (q *Queue) begin() {
	for _, t := range q.tickets {
		if q.begun >= q.running {
			return
		}
		if quota := t.job.Quota; t.begun || quota != nil && q.tenants[t.job.Tenant].running >= quota.Running {
			continue
		}
		t.begun = true
		q.begun++
		q.add(t.job.Tenant, 1, -1)
		if t.job.Workspace == "" {
			t.user = q.users.lend()
		}
		close(t.place)
	}
}

// Begun is closed when the job may begin.
func (t *Ticket) Begun() <-chan struct{} { return t.place }

// User is the user id that the job was lent; false for none: a job that has a workspace
// runs as its owner, and one that has not begun as nobody.
func (t *Ticket) User() (id int, lent bool) {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	return t.queue.users.first + t.user, t.user != noUser
}

// Leave gives back all that the job has, whether it has begun or not. A second call
// changes nothing.
func (t *Ticket) Leave() {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.left {
		return
	}
	t.left = true
	for i, other := range q.tickets {
		if other == t {
			q.tickets = append(q.tickets[:i:i], q.tickets[i+1:]...)
			break
		}
	}
	if t.begun {
		q.begun--
		q.add(t.job.Tenant, -1, 0)
		q.users.giveBack(t.user)
	} else {
		q.add(t.job.Tenant, 0, -1)
	}
	q.begin()
}

// Close refuses all further jobs. Those that were admitted keep their places.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// Closed reports whether Close was called.
func (q *Queue) Closed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// Count returns how many jobs have begun, and how many wait.
func (q *Queue) Count() (running, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.begun, len(q.tickets) - q.begun
}
