package sniproxy

import (
	"runtime"
	"sync"

	"sallyport/internal/evloop"
	"sallyport/sniproxy/reach"
)

const (
	// shortBytes is the room of the buffer through which short pieces go.
	shortBytes = 16 << 10
	// maxPooled bounds what a worker keeps of each kind for the connections to come:
	// memory that was just in use is in the processor's cache, what the collector
	// gives is not.
	maxPooled = 128
)

// A worker serves the connections of some cells on an event loop, to which all that is
// theirs belongs.
type worker struct {
	*evloop.Loop
	recorder *recorder

	schedule schedule
	moved    int // bytes, ever
	buf      [shortBytes]byte
	pool     struct {
		tunnels []*tunnel
		dials   []*reach.Dial
	}

	services int // that it serves; guarded by workers.mu
}

// workers are those that run, at most one for each processor. There are none while
// nobody serves.
var workers workerSet

type workerSet struct {
	mu      sync.Mutex // guards running, and the services of each
	running []*worker
}

// join returns the worker with the fewest services, for one more. The caller calls
// leave when that has ended.
func (ws *workerSet) join() (*worker, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var least *worker
	for _, w := range ws.running {
		if least == nil || w.services < least.services {
			least = w
		}
	}
	if least == nil || least.services > 0 && len(ws.running) < runtime.GOMAXPROCS(0) {
		w, err := newWorker()
		if err != nil {
			return nil, err
		}
		ws.running, least = append(ws.running, w), w
	}
	least.services++
	return least, nil
}

// leave ends a worker with its last service, and waits for it.
func (ws *workerSet) leave(w *worker) {
	ws.mu.Lock()
	if w.services--; w.services > 0 {
		ws.mu.Unlock()
		return
	}
	for i := range ws.running {
		if ws.running[i] == w {
			ws.running = append(ws.running[:i], ws.running[i+1:]...)
			break
		}
	}
	ws.mu.Unlock()
	w.Stop()
	w.recorder.end()
}

func newWorker() (*worker, error) {
	w := new(worker)
	var err error
	if w.Loop, err = evloop.New(w.work); err != nil {
		return nil, err
	}
	w.recorder = newRecorder(w.Loop)
	go w.Run()
	return w, nil
}

// work is what there is to do besides events.
func (w *worker) work() (more bool) {
	w.moveBytes()
	w.recorder.handOver()
	return w.schedule.waiting > 0
}

// newTunnel returns a tunnel without connections.
func (w *worker) newTunnel() *tunnel {
	var t *tunnel
	if n := len(w.pool.tunnels); n > 0 {
		t = w.pool.tunnels[n-1]
		w.pool.tunnels = w.pool.tunnels[:n-1]
	} else {
		t = new(tunnel)
	}
	t.loop, t.timer.Owner, t.client.tunnel, t.up.tunnel = w, t, t, t
	return t
}

// freeTunnel takes back a tunnel that is over, and of which nobody else knows
// any more: a change of policy may have posted a word about one that it cut.
func (w *worker) freeTunnel(t *tunnel) {
	if t.queued || t.doomed.Load() || len(w.pool.tunnels) >= maxPooled {
		return
	}
	*t = tunnel{}
	w.pool.tunnels = append(w.pool.tunnels, t)
}

func (w *worker) newDial() *reach.Dial {
	n := len(w.pool.dials)
	if n == 0 {
		return new(reach.Dial)
	}
	d := w.pool.dials[n-1]
	w.pool.dials = w.pool.dials[:n-1]
	return d
}

// freeDial ends what a tunnel had to reach its host with.
func (t *tunnel) freeDial() {
	if t.dial == nil {
		return
	}
	if t.dial.Reusable() && len(t.loop.pool.dials) < maxPooled {
		*t.dial = reach.Dial{}
		t.loop.pool.dials = append(t.loop.pool.dials, t.dial)
	}
	t.dial = nil
}
