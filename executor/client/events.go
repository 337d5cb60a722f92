package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"sallyport/executor/api"
)

const (
	ndjson          = "application/x-ndjson"
	defaultPatience = 2 * time.Minute
	firstPause      = 100 * time.Millisecond // before a broken stream is tried again
	longestPause    = 3 * time.Second
)

// errBroken is a stream that ended before its last event.
var errBroken = errors.New("the stream of events broke off")

// Execute starts an execution and yields its events up to the result. A
// connection that breaks is made again, and the events go on where they were; it
// is the same execution even where the first answer was lost. The run goes on
// when the caller stops here or ctx ends: only Cancel ends it.
func (c *Client) Execute(ctx context.Context, req api.Request) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		body, err := json.Marshal(req)
		if err != nil {
			yield(api.Event{}, fmt.Errorf("encode the request: %w", err))
			return
		}
		key := http.Header{"Idempotency-Key": {rand.Text()}}
		f := &follower{client: c, follow: true, start: func() (*http.Response, error) {
			return c.send(ctx, http.MethodPost, "/v1/executions", ndjson, body, key)
		}}
		f.run(ctx, yield)
	}
}

// Events yields the events of an execution whose number is above after. With
// follow it goes on until the result, over broken connections too; without, it
// ends with the last event that there is now.
func (c *Client) Events(ctx context.Context, id string, after int64, follow bool) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		if id == "" { // which a follower takes for a run that is to be started
			yield(api.Event{}, errNoID)
			return
		}
		f := &follower{client: c, id: id, after: after, follow: follow}
		f.run(ctx, yield)
	}
}

// A follower reads the events of one execution.
type follower struct {
	client *Client
	start  func() (*http.Response, error) // makes the execution, while its id is not known
	id     string
	after  int64 // the number of the last event that was yielded
	follow bool
}

// run yields events until the last one, an error that is final, or a caller who
// wants no more.
func (f *follower) run(ctx context.Context, yield func(api.Event, error) bool) {
	patience := f.client.Patience
	if patience == 0 {
		patience = defaultPatience
	}
	pause, since, reached := firstPause, time.Now(), false
	for {
		before := f.after
		done, err := f.once(ctx, yield, &reached)
		if done {
			return
		}
		if f.after > before {
			pause, since = firstPause, time.Now()
		}
		switch {
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case f.follow && passing(err) && (reached || lost(err)) && time.Since(since) < patience:
			select {
			case <-time.After(pause):
				pause = min(2*pause, longestPause)
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		yield(api.Event{}, err)
		return
	}
}

// passing reports whether trying again may help.
func passing(err error) bool {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Retryable
	}
	_, ok := errors.AsType[*UnreachableError](err)
	return ok
}

// lost reports an answer that was lost, so that the request may have been taken.
func lost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// once makes one connection and yields what comes of it. It is done when nothing
// more is to be yielded. Until an answer has been good, reached stays false.
func (f *follower) once(ctx context.Context, yield func(api.Event, error) bool, reached *bool) (done bool, err error) {
	resp, err := f.open(ctx)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if err := f.client.refusal(resp); err != nil {
		return false, err
	}
	*reached = true
	return f.read(resp.Body, yield)
}

func (f *follower) open(ctx context.Context) (*http.Response, error) {
	if f.id == "" {
		return f.start()
	}
	path := fmt.Sprintf("/v1/executions/%s/events?after=%d&follow=%t", url.PathEscape(f.id), f.after, f.follow)
	return f.client.send(ctx, http.MethodGet, path, ndjson, nil, nil)
}

// read yields the events of one answer. It is done at the last one.
func (f *follower) read(r io.Reader, yield func(api.Event, error) bool) (done bool, err error) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadBytes('\n')
		switch {
		case err == io.EOF && len(line) == 0 && !f.follow:
			return true, nil
		case err != nil:
			return false, f.client.unreachable(errBroken)
		}
		var ev api.Event
		if err := json.Unmarshal(line, &ev); err != nil {
			return false, fmt.Errorf("read an event of execution %s: %w", f.id, err)
		}
		if ev.Seq <= f.after {
			continue // sent again
		}
		f.after = ev.Seq
		if f.id == "" {
			f.id = ev.Execution
		}
		if !yield(ev, nil) || ev.Type == api.EventResult {
			return true, nil
		}
	}
}
