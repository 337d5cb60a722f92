package sniproxy

import (
	"sync"
	"sync/atomic"
	"time"

	"sallyport/firewall/account"
	"sallyport/internal/contain"
)

const (
	// recordDelay is how long the record of a tunnel that has ended may wait for
	// others, to be written with them in one go; that of a refusal does not wait.
	recordDelay = 2 * time.Millisecond
	// maxTogether is how many are not kept waiting for more.
	maxTogether = 64
)

// maxUndelivered bounds the records that may wait in one loop before it accepts
// no more connections.
const maxUndelivered = 4096

// A clerk delivers the records of a loop's tunnels, in order, so that the loop
// need not wait for whoever keeps them: a log that cannot be written holds up
// what is to be decided, and no tunnel that stands.
type clerk struct {
	fresh   []delivery // the loop's, not handed over yet
	urgent  bool       // somebody waits for one of them
	waiting atomic.Int64

	mu     sync.Mutex // guards what follows
	queue  []delivery
	spare  []delivery // what queue was before
	closed bool
	work   sync.Cond
	ended  chan struct{}
}

// A delivery is a record on its way.
type delivery struct {
	v       *service
	rec     account.Record
	refusal *refusal
	turned  bool    // its connection was not let in; otherwise it is counted out then
	tunnel  *tunnel // of which it is the refusal, and which goes on then
}

func newClerk() *clerk {
	c := &clerk{ended: make(chan struct{})}
	c.work.L = &c.mu
	go c.run()
	return c
}

// add takes a record from the loop.
func (c *clerk) add(d delivery) {
	c.waiting.Add(1)
	c.fresh = append(c.fresh, d)
	c.urgent = c.urgent || d.tunnel != nil
}

// deliver hands over what was added since the last time.
func (c *clerk) deliver() {
	if len(c.fresh) == 0 {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, c.fresh...)
	c.mu.Unlock()
	c.work.Signal()
	clear(c.fresh)
	c.fresh, c.urgent = c.fresh[:0], false
}

// end waits until everything is delivered.
func (c *clerk) end() {
	c.deliver()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Signal()
	<-c.ended
}

func (c *clerk) run() {
	defer close(c.ended)
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed {
			c.work.Wait()
		}
		batch := c.queue
		c.queue = c.spare[:0]
		c.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		keep(batch)
		c.waiting.Add(-int64(len(batch)))
		if c.spare = nil; cap(batch) <= maxEvents {
			c.spare = batch[:0]
		}
	}
}

// keep delivers records, and lets those go on who have waited for that.
func keep(batch []delivery) {
	for i := range batch {
		batch[i].note()
	}
	for i := range batch {
		batch[i].flush()
	}
	for i := range batch {
		switch d := &batch[i]; {
		case d.tunnel != nil:
			t := d.tunnel
			t.loop.post(t.refused)
		default:
			if !d.turned {
				d.v.leave()
			}
			d.v.admitted.Done()
		}
	}
	clear(batch)
}

func (d *delivery) note() {
	defer contain.To(d)
	if d.turned {
		d.v.turnAway(d.refusal, d.rec.Client)
		return
	}
	d.v.note(&d.rec, d.refusal)
}

func (d *delivery) flush() {
	defer contain.To(d)
	d.v.flush()
}

func (d *delivery) Panicked(err error) { d.v.warn("keeping a record panicked", err) }
