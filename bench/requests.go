package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"sallyport/bench/report"
	"sallyport/executor/api"
)

// The load of one turn.
const (
	callers  = 8 // each has a connection, and one request under way
	loadTime = time.Second
)

// requests measures what only passes the API beside a server that sends the same
// bytes without looking at the request.
func (b *bench) requests(ctx context.Context, p *peer) ([]report.Figure, error) {
	finished, err := b.finishedRun(ctx)
	if err != nil {
		return nil, err
	}
	paths := []struct{ name, path string }{
		{"/healthz", "/healthz"},
		{"/v1/capabilities", "/v1/capabilities"},
		{"/v1/executions/{id}", "/v1/executions/" + finished},
	}
	var figures []report.Figure
	for _, of := range paths {
		ours := newTarget(b.Addr+of.path, b.Token)
		answer, err := ours.learn(ctx)
		if err != nil {
			return nil, err
		}
		if err := p.record(ctx, of.path, answer, ours.want); err != nil {
			return nil, err
		}
		theirs := newTarget(p.url+of.path, b.Token)
		theirs.want = ours.want
		taken, err := plan{warmups: 1, rounds: 5}.interleave(ctx,
			contender{"GET " + of.name, ours.load}, contender{"the peer's GET " + of.name, theirs.load})
		ours.client.CloseIdleConnections()
		theirs.client.CloseIdleConnections()
		if err != nil {
			return nil, err
		}
		const name = "bare net/http server"
		figures = append(figures,
			report.Beside("GET "+of.name+", throughput", "/s", taken[0][0], name, taken[1][0]),
			report.Beside("GET "+of.name+", p99", "ms", taken[0][1], name, taken[1][1]))
	}
	return figures, nil
}

// finishedRun makes an execution that has ended, and returns its id.
func (b *bench) finishedRun(ctx context.Context) (string, error) {
	request := api.Request{Prompt: "go", Config: api.Config{Agent: "command", Argv: []string{"echo", said}}}
	for ev, err := range b.Execute(ctx, request) {
		switch {
		case err != nil:
			return "", err
		case ev.Result != nil:
			return ev.Result.ExecutionID, nil
		}
	}
	return "", errors.New("the stream ended without a result")
}

// A target is one URL under load.
type target struct {
	url, token string
	want       []byte // the body of the right answer
	client     *http.Client
}

func newTarget(url, token string) *target {
	return &target{url: url, token: token, client: &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{MaxIdleConns: callers, MaxIdleConnsPerHost: callers, DisableCompression: true},
	}}
}

// learn makes one request and takes its answer for the right one.
func (t *target) learn(ctx context.Context) (http.Header, error) {
	header, body, err := t.get(ctx)
	t.want = body
	return header, err
}

// load has the callers ask as fast as they are answered. It returns the requests
// in a second and the 99th percentile of their times in ms.
func (t *target) load(ctx context.Context) ([]float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	times := make([]report.Samples, callers)
	var group errgroup.Group
	began := time.Now()
	for i := range callers {
		group.Go(func() error {
			for last := began; last.Sub(began) < loadTime; {
				_, body, err := t.get(ctx)
				if err == nil && len(body) != len(t.want) {
					err = fmt.Errorf("GET %s: %d bytes, want %d", t.url, len(body), len(t.want))
				}
				if err != nil {
					cancel()
					return err
				}
				now := time.Now()
				times[i] = append(times[i], ms(now.Sub(last)))
				last = now
			}
			return nil
		})
	}
	err := group.Wait()
	took := time.Since(began)
	if err != nil {
		return nil, err
	}
	var all report.Samples
	for _, s := range times {
		all = append(all, s...)
	}
	return []float64{float64(len(all)) / took.Seconds(), all.Quantile(0.99)}, nil
}

// get makes one request, which must be answered with 200.
func (t *target) get(ctx context.Context) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("make a request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+t.token)
	resp, err := t.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("read the answer to GET %s: %w", t.url, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("GET %s: %s: %.200s", t.url, resp.Status, body)
	}
	return resp.Header, body, nil
}
