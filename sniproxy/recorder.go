package sniproxy

import (
	"sync"
	"sync/atomic"
	"time"

	"sallyport/firewall/account"
	"sallyport/internal/contain"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/refusal"
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

// A recorder delivers the records of a loop's connections, in order, so that the loop
// need not wait for whoever keeps them: a log that cannot be written holds up
// what is to be decided, and no tunnel that stands.
type recorder struct {
	loop        *evloop.Loop
	added       []delivery   // the loop's, not handed over yet
	urgent      bool         // somebody waits for one of them
	timer       evloop.Timer // set while some wait to be handed over
	undelivered atomic.Int64

	mu      sync.Mutex // guards what follows
	queue   []delivery
	emptied []delivery // what queue was before
	closed  bool
	work    sync.Cond
	ended   chan struct{}
}

// A delivery is a record on its way.
type delivery struct {
	v       *service
	rec     account.Record
	refusal *refusal.Refusal
	outside bool    // its connection was not let in; otherwise it is counted out then
	tunnel  *tunnel // of which it is the refusal, and which goes on then
}

func newRecorder(l *evloop.Loop) *recorder {
	c := &recorder{loop: l, ended: make(chan struct{})}
	c.work.L = &c.mu
	c.timer.Owner = c
	go c.run()
	return c
}

// add takes a record from the loop.
func (c *recorder) add(d delivery) {
	c.undelivered.Add(1)
	c.added = append(c.added, d)
	c.urgent = c.urgent || d.tunnel != nil
}

// handOver delivers what was added, now or soon.
func (c *recorder) handOver() {
	switch n := len(c.added); {
	case n == 0:
	case c.urgent || n >= maxTogether:
		c.Expired()
	case !c.timer.IsSet():
		c.loop.Set(&c.timer, c.loop.Now.Add(recordDelay))
	}
}

// Expired is called when records have waited long enough.
func (c *recorder) Expired() {
	c.loop.Unset(&c.timer)
	c.deliver()
}

// deliver has delivered what was added since the last time.
func (c *recorder) deliver() {
	if len(c.added) == 0 {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, c.added...)
	c.mu.Unlock()
	c.work.Signal()
	clear(c.added)
	c.added, c.urgent = c.added[:0], false
}

// end waits until everything is delivered.
func (c *recorder) end() {
	c.deliver()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Signal()
	<-c.ended
}

func (c *recorder) run() {
	defer close(c.ended)
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed {
			c.work.Wait()
		}
		batch := c.queue
		c.queue = c.emptied[:0]
		c.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		deliverAll(batch)
		c.undelivered.Add(-int64(len(batch)))
		if c.emptied = nil; cap(batch) <= evloop.MaxEvents {
			c.emptied = batch[:0]
		}
	}
}

// deliverAll delivers records, and lets those go on who have waited for that.
func deliverAll(batch []delivery) {
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
			t.loop.Post(t.refused)
		default:
			if !d.outside {
				d.v.leave()
			}
			d.v.admitted.Done()
		}
	}
	clear(batch)
}

func (d *delivery) note() {
	defer contain.To(d)
	if d.outside {
		d.v.recordOutside(d.refusal, d.rec.Client)
		return
	}
	d.v.note(&d.rec, d.refusal)
}

func (d *delivery) flush() {
	defer contain.To(d)
	d.v.flush()
}

func (d *delivery) Panicked(err error) { d.v.warn("keeping a record panicked", err) }
