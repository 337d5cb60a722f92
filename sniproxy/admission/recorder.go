package admission

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

// A Recorder delivers the records of a loop's connections, in order, so that the loop
// need not wait for whoever keeps them: a log that cannot be written holds up
// what is to be decided, and no tunnel that stands.
type Recorder struct {
	loop        *evloop.Loop
	added       []Delivery   // the loop's, not handed over yet
	urgent      bool         // somebody waits for one of them
	timer       evloop.Timer // set while some wait to be handed over
	undelivered atomic.Int64

	mu      sync.Mutex // guards what follows
	queue   []Delivery
	emptied []Delivery // what queue was before
	closed  bool
	work    sync.Cond
	ended   chan struct{}
}

// A Delivery is a record on its way.
type Delivery struct {
	*Service
	Record  account.Record
	Refusal *refusal.Refusal
	// Next is told, aside, when the record is delivered, and goes on then. If nil, the
	// connection is counted out.
	Next interface{ Recorded() }

	outside bool // its connection was not let in
}

func newRecorder(l *evloop.Loop) *Recorder {
	c := &Recorder{loop: l, ended: make(chan struct{})}
	c.work.L = &c.mu
	c.timer.Owner = c
	go c.run()
	return c
}

// Add takes a record from the loop.
func (c *Recorder) Add(d Delivery) {
	c.undelivered.Add(1)
	c.added = append(c.added, d)
	c.urgent = c.urgent || d.Next != nil
}

// handOver delivers what was added, now or soon.
func (c *Recorder) handOver() {
	switch n := len(c.added); {
	case n == 0:
	case c.urgent || n >= maxTogether:
		c.Expired()
	case !c.timer.IsSet():
		c.loop.Set(&c.timer, c.loop.Now.Add(recordDelay))
	}
}

// Expired is called when records have waited long enough.
func (c *Recorder) Expired() {
	c.loop.Unset(&c.timer)
	c.deliver()
}

// deliver has delivered what was added since the last time.
func (c *Recorder) deliver() {
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
func (c *Recorder) end() {
	c.deliver()
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.work.Signal()
	<-c.ended
}

func (c *Recorder) run() {
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
func deliverAll(batch []Delivery) {
	for i := range batch {
		batch[i].note()
	}
	for i := range batch {
		batch[i].flush()
	}
	for i := range batch {
		switch d := &batch[i]; {
		case d.Next != nil:
			d.Next.Recorded()
		case d.outside:
			d.admitted.Done()
		default:
			d.Left()
		}
	}
	clear(batch)
}

func (d *Delivery) note() {
	defer contain.To(d)
	if d.outside {
		d.recordOutside(d.Refusal, d.Record.Client)
		return
	}
	d.Service.note(&d.Record, d.Refusal)
}

func (d *Delivery) flush() {
	defer contain.To(d)
	d.Service.flush()
}

func (d *Delivery) Panicked(err error) { d.Warn("keeping a record panicked", err) }
