package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"

	"sallyport/compose/internet/echo"
)

// streamLimit bounds how long a stream waits for its client.
const streamLimit = time.Minute

// newGRPCSite serves the service of the package echo, over HTTP/2.
func newGRPCSite() http.Handler {
	s := grpc.NewServer()
	echo.Register(s)
	return s
}

// webSocket says what it is told, message by message.
func webSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer c.CloseNow()
	ctx, cancel := context.WithTimeout(r.Context(), streamLimit)
	defer cancel()
	for {
		kind, message, err := c.Read(ctx)
		if err != nil {
			return
		}
		if err := c.Write(ctx, kind, message); err != nil {
			return
		}
	}
}

// A stage serves streams that go on only once the client has reacted to their
// first part, so that a proxy which holds that part back stops them for good:
//
//	GET  /events?id=X  server-sent events: "first", and after /go "second"
//	GET  /poll?id=X    nothing at all until /go
//	POST /go?id=X
type stage struct {
	mu      sync.Mutex // guards waiting
	waiting map[string]chan struct{}
}

// cue is what a stream of that id waits for.
func (s *stage) cue(id string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = make(map[string]chan struct{})
	}
	if s.waiting[id] == nil {
		s.waiting[id] = make(chan struct{}, 1)
	}
	return s.waiting[id]
}

// wait returns false where the client has gone or never reacts.
func (s *stage) wait(r *http.Request) bool {
	id := r.FormValue("id")
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, id)
	}()
	select {
	case <-s.cue(id):
		return true
	case <-r.Context().Done():
	case <-time.After(streamLimit):
	}
	return false
}

func (s *stage) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	if _, err := fmt.Fprint(w, "data: first\n\n"); err != nil || http.NewResponseController(w).Flush() != nil {
		return
	}
	if s.wait(r) {
		fmt.Fprint(w, "data: second\n\n")
	}
}

func (s *stage) poll(w http.ResponseWriter, r *http.Request) {
	if s.wait(r) {
		fmt.Fprintln(w, "polled")
	}
}

func (s *stage) goOn(w http.ResponseWriter, r *http.Request) {
	select {
	case s.cue(r.FormValue("id")) <- struct{}{}:
	default: // told already
	}
}
