package admission

import (
	"runtime"
	"slices"
	"sync"

	"sallyport/internal/evloop"
)

// bufferBytes is the room of a worker's buffer, through which short pieces go.
const bufferBytes = 16 << 10

// A Worker serves the connections of some cells on an event loop, to which all that is
// theirs belongs.
type Worker struct {
	*evloop.Loop
	Recorder *Recorder
	Buffer   [bufferBytes]byte
	// Work is what the handlers have to do besides events, for all cells together; nil
	// if nothing. More says that there is more of it.
	Work interface{ Work() (more bool) }

	services int // that it serves; guarded by workers.mu
}

// workers are those that run, at most one for each processor. There are none while
// nobody serves.
var workers workerSet

type workerSet struct {
	mu      sync.Mutex // guards running, and the services of each
	running []*Worker
}

// join returns the worker with the fewest services, for one more. The caller calls
// leave when that has ended.
func (ws *workerSet) join() (*Worker, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	var least *Worker
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
func (ws *workerSet) leave(w *Worker) {
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
	w.Recorder.end()
}

func newWorker() (*Worker, error) {
	w := new(Worker)
	var err error
	if w.Loop, err = evloop.New(w.work); err != nil {
		return nil, err
	}
	w.Recorder = newRecorder(w.Loop)
	go w.Run()
	return w, nil
}

// work is what there is to do besides events.
func (w *Worker) work() (more bool) {
	if w.Work != nil {
		more = w.Work.Work()
	}
	w.Recorder.handOver()
	return more
}

// Running returns the workers that run.
func Running() []*Worker {
	workers.mu.Lock()
	defer workers.mu.Unlock()
	return slices.Clone(workers.running)
}
