// Package queue says which executions may run now and which have to wait. It bounds
// those that run and those that wait, of all tenants, of each, and of each module, shares
// places among tenants by weight and within a tenant by priority, keeps apart those that use
// the same directories, and lends each one a user id. Whoever its own bound holds back holds
// nobody else back. It has no clock and no goroutine, and knows nothing of requests: what it
// answers follows from what it was asked and told before.
//
//	ticket, refusal := q.Admit(job)
//	<-ticket.Begun() // or the end of who waits
//	defer ticket.Leave(held)
package queue

import (
	"slices"
	"sync"
	"time"
)

// A Job is an execution that asks for a place.
type Job struct {
	ID     string
	Tenant string
	// Weight is its tenant's share of the places where others want them too; 1 if it is
	// less.
	Weight int
	Quota  *Quota // of its tenant's jobs; if nil, none
	// Module is what the job belongs to, beside its tenant, empty for nothing.
	Module string
	// Priority is from 0, the lowest, to MaxPriority: it counts among its tenant's jobs.
	Priority int
	Directories
}

// MaxPriority is the highest priority.
const MaxPriority = 3

// A Quota bounds the jobs of one tenant: how many run, and how many wait.
type Quota struct{ Running, Waiting int }

// A Queue admits jobs. It is safe for concurrent use.
type Queue struct {
	running, waiting int // at most
	module           int // run at once of each module; 0 for no bound

	mu      sync.Mutex // guards what follows
	tickets []*Ticket  // of the jobs that were admitted and have not left, the oldest first
	begun   int        // of those
	tenants map[string]count
	modules map[string]int // how many of each run
	flows   flows          // of tenants
	users   users
	closed  bool
}

// A count is of a tenant's jobs.
type count struct{ running, waiting int }

// Limits bound a queue: how many jobs run at once, of all and of one module (0 for no
// bound), and how many wait.
type Limits struct{ Running, Module, Waiting int }

// New makes a queue. The user ids of jobs begin at firstUser; there are as many as users
// says, and at least one.
func New(limits Limits, firstUser, users int) *Queue {
	return &Queue{
		running: limits.Running, module: limits.Module, waiting: limits.Waiting,
		users: newUsers(firstUser, users), tenants: map[string]count{}, modules: map[string]int{},
	}
}

// A Ticket is the place of a job that was admitted.
type Ticket struct {
	job   Job
	queue *Queue
	place chan struct{} // closed when the job may begin

	// Guarded by the queue:
	tenant, class *flow
	charged       float64 // seconds, when it began
	user          int     // that was lent, noUser for none
	begun, left   bool
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
	t.tenant = q.flows.enter(job.Tenant, float64(max(job.Weight, 1)))
	t.class = t.tenant.flows.enter(job.Priority, weigh(job.Priority))
	q.tickets = append(q.tickets, t)
	q.add(job.Tenant, 0, 1)
	q.begin()
	if quota := job.Quota; quota != nil && !t.begun && q.tenants[job.Tenant].waiting > quota.Waiting {
		q.remove(t)
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

// begin gives free places to those that are next. q.mu is held.
func (q *Queue) begin() {
	for q.begun < q.running {
		t := q.next()
		if t == nil {
			return
		}
		t.begun = true
		q.begun++
		q.add(t.job.Tenant, 1, -1)
		q.modules[t.job.Module]++
		t.charged = t.tenant.mean
		q.flows.charge(t.tenant, t.charged)
		t.tenant.flows.charge(t.class, t.charged)
		if t.job.Workspace == "" {
			t.user = q.users.lend()
		}
		close(t.place)
	}
}

// mayBegin reports whether neither its tenant's nor its module's bound holds a job back.
// q.mu is held.
func (q *Queue) mayBegin(t *Ticket) bool {
	quota, module := t.job.Quota, t.job.Module
	return (quota == nil || q.tenants[t.job.Tenant].running < quota.Running) &&
		(module == "" || q.module <= 0 || q.modules[module] < q.module)
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

// Leave gives back all that the job has, whether it has begun or not. Held is how long it
// held its place. A second call changes nothing.
func (t *Ticket) Leave(held time.Duration) {
	q := t.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.left {
		return
	}
	if t.begun {
		t.tenant.settle(t.charged, held.Seconds())
		t.class.settle(t.charged, held.Seconds())
	}
	q.remove(t)
	q.begin()
}

// remove takes a job out of the queue. q.mu is held.
func (q *Queue) remove(t *Ticket) {
	t.left = true
	i := slices.Index(q.tickets, t)
	q.tickets = slices.Delete(q.tickets, i, i+1)
	if t.begun {
		q.begun--
		q.add(t.job.Tenant, -1, 0)
		if q.modules[t.job.Module]--; q.modules[t.job.Module] == 0 {
			delete(q.modules, t.job.Module)
		}
		q.users.giveBack(t.user)
	} else {
		q.add(t.job.Tenant, 0, -1)
	}
	t.tenant.flows.leave(t.class)
	q.flows.leave(t.tenant)
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
