package executor

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/store"
)

// heartbeat is how often a quiet event stream says that it lives, by a comment.
// NDJSON has nothing of the kind: a caller behind an impatient proxy takes SSE.
const heartbeat = 15 * time.Second

// getEvents sends the events of an execution with a number above "after".
func (e *Executor) getEvents(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	entry, ok := e.entry(w, r, by)
	if !ok {
		return
	}
	form, after, follow, p := wantedEvents(r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	stream(w, r, entry, form, after, follow)
}

// wantedEvents reads which events a caller wants, and in which form.
func wantedEvents(r *http.Request) (form string, after int64, follow bool, p *api.Problem) {
	if form, p = negotiate(r, ndjsonType, sseType); p != nil {
		return "", 0, false, p
	}
	after, follow, p = eventsQuery(r, form == sseType)
	return form, after, follow, p
}

// eventsQuery reads after and follow. What an EventSource says of the last event
// that it got counts where the query has no after.
func eventsQuery(r *http.Request, follow bool) (int64, bool, *api.Problem) {
	query := r.URL.Query()
	for name, values := range query {
		if name != "after" && name != "follow" || len(values) > 1 {
			return 0, false, badRequest(fmt.Sprintf("query parameter %.64q: known here are after and follow, each at most once", name))
		}
	}
	from := query.Get("after")
	if !query.Has("after") {
		from = r.Header.Get("Last-Event-ID")
	}
	var after int64
	if from != "" {
		var err error
		if after, err = strconv.ParseInt(from, 10, 64); err != nil || after < 0 {
			return 0, false, badRequest(fmt.Sprintf("after is %.64q; it must be the seq of an event, or 0", from))
		}
	}
	switch v := query.Get("follow"); {
	case v == "true" || v == "1":
		follow = true
	case v == "false" || v == "0":
		follow = false
	case query.Has("follow"):
		return 0, false, badRequest(fmt.Sprintf("follow is %.64q; it must be true or false", v))
	}
	return after, follow, nil
}

// stream sends events as they come until the last one or until the caller goes
// away, which changes nothing about the run.
func stream(w http.ResponseWriter, r *http.Request, entry *store.Entry, form string, after int64, follow bool) {
	if form == sseType && entry.Finished() && ended(entry, after) {
		w.WriteHeader(http.StatusNoContent) // the end of an EventSource's attempts to go on
		return
	}
	send(w, r, form, func(ctx context.Context) iter.Seq2[store.Line, error] { return entry.Events(ctx, after, follow) })
}

// send sends lines as they come, in a form.
func send(w http.ResponseWriter, r *http.Request, form string, events func(context.Context) iter.Seq2[store.Line, error]) {
	h := w.Header()
	h.Set("Content-Type", form)
	h.Set("X-Accel-Buffering", "no") // nginx would hold small events back
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &sender{w: w, ctx: r.Context(), control: http.NewResponseController(w), sse: form == sseType}
	defer context.AfterFunc(s.ctx, func() { s.control.SetWriteDeadline(time.Now()) })() // nor is a write waited for
	w.WriteHeader(http.StatusOK)
	lines, taken, done := feed(ctx, events(ctx))
	s.loop(ctx, lines, taken, done)
	cancel()
	<-done
}

// feed reads events in a goroutine, one ahead of taken, until they or ctx end;
// then it closes done.
func feed(ctx context.Context, events iter.Seq2[store.Line, error]) (<-chan store.Line, chan<- struct{}, <-chan struct{}) {
	lines, taken, done := make(chan store.Line), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for line, err := range events {
			if err != nil {
				return
			}
			select {
			case lines <- line:
			case <-ctx.Done():
				return
			}
			select {
			case <-taken:
			case <-ctx.Done():
				return
			}
		}
	}()
	return lines, taken, done
}

// ended reports whether a finished execution has no event above after.
func ended(entry *store.Entry, after int64) bool {
	for range entry.Events(context.Background(), after, false) {
		return false
	}
	return true
}

// A sender writes one stream.
type sender struct {
	w       http.ResponseWriter
	ctx     context.Context // of the call, which gets nothing once it has ended
	control *http.ResponseController
	sse     bool
	buf     bytes.Buffer
}

// loop writes lines until they end or cannot be written. It flushes when no
// further line is ready.
func (s *sender) loop(ctx context.Context, lines <-chan store.Line, taken chan<- struct{}, done <-chan struct{}) {
	if s.flush() != nil {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case line := <-lines:
			s.add(line)
			select {
			case taken <- struct{}{}:
			case <-ctx.Done():
				return
			}
			beat.Reset(heartbeat)
		case <-beat.C:
			if !s.sse {
				continue
			}
			s.buf.WriteString(": still here\n\n")
		case <-done:
			s.flush()
			return
		case <-ctx.Done():
			return
		}
		if s.flush() != nil {
			return
		}
	}
}

func (s *sender) add(line store.Line) {
	if !s.sse {
		s.buf.Write(line.JSON)
		return
	}
	fmt.Fprintf(&s.buf, "id: %d\nevent: %s\ndata: %s\n", line.Seq, line.Type(), line.JSON)
}

func (s *sender) flush() error {
	extend(s.w)
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		return err
	}
	s.buf.Reset()
	return s.control.Flush()
}

// negotiate picks the media type that the caller wants most of those offered, of
// which the first is sent to a caller that has no wish (RFC 9110, section 12.5.1).
func negotiate(r *http.Request, offers ...string) (string, *api.Problem) {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	if strings.TrimSpace(accept) == "" {
		return offers[0], nil
	}
	best, weight := "", 0.0
	for _, offer := range offers {
		if q := quality(accept, offer); q > weight {
			best, weight = offer, q
		}
	}
	if best == "" {
		return "", api.NewProblem(http.StatusNotAcceptable, api.CodeInvalidRequest, "Accept must allow one of "+strings.Join(offers, ", "))
	}
	return best, nil
}

// quality is the weight that an Accept header gives to a media type: that of the
// range which names it most closely.
func quality(accept, offer string) float64 {
	kind, _, _ := strings.Cut(offer, "/")
	ranges := []string{"*/*", kind + "/*", offer} // the closest last
	closest, weight := -1, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		q := 1.0
		if v, ok := params["q"]; ok {
			if q, err = strconv.ParseFloat(v, 64); err != nil {
				q = 0
			}
		}
		if i := slices.Index(ranges, name); i > closest {
			closest, weight = i, q
		}
	}
	return weight
}
