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
	r := &Recorder{loop: l, ended: make(chan struct{})}
	r.work.L = &r.mu
	r.timer.Owner = r
	go r.run()
	return r
}

// Add takes a record from the loop.
func (r *Recorder) Add(d Delivery) {
	r.undelivered.Add(1)
	r.added = append(r.added, d)
	r.urgent = r.urgent || d.Next != nil
}

// handOver delivers what was added, now or soon.
func (r *Recorder) handOver() {
	switch n := len(r.added); {
	case n == 0:
	case r.urgent || n >= maxTogether:
		r.Expired()
	case !r.timer.IsSet():
		r.loop.Set(&r.timer, r.loop.Now.Add(recordDelay))
	}
}

// Expired is called when records have waited long enough.
func (r *Recorder) Expired() {
	r.loop.Unset(&r.timer)
	r.deliver()
}

// deliver has delivered what was added since the last time.
func (r *Recorder) deliver() {
	if len(r.added) == 0 {
		return
	}
	r.mu.Lock()
	r.queue = append(r.queue, r.added...)
	r.mu.Unlock()
	r.work.Signal()
	clear(r.added)
	r.added, r.urgent = r.added[:0], false
}

// end waits until everything is delivered.
func (r *Recorder) end() {
	r.deliver()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.work.Signal()
	<-r.ended
}

func (r *Recorder) run() {
	defer close(r.ended)
	for {
		r.mu.Lock()
		for len(r.queue) == 0 && !r.closed {
			r.work.Wait()
		}
		batch := r.queue
		r.queue = r.emptied[:0]
		r.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		deliverAll(batch)
		r.undelivered.Add(-int64(len(batch)))
		if r.emptied = nil; cap(batch) <= evloop.MaxEvents {
			r.emptied = batch[:0]
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
