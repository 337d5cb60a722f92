package boundary

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sallyport/entrypoint/probe"
	"sallyport/entrypoint/wire"
)

// maxHits bounds the hits that a canary may report; more means that something is wrong
// with it, and a check that misses hits would prove nothing.
const maxHits = 10_000

// A listener is a running canary.
type listener struct {
	hello probe.CanaryHello
	stdin io.WriteCloser        // takes requests; its end ends the canary
	news  chan probe.CanaryLine // all that it says, for probe
	done  chan struct{}

	// Valid once done is closed.
	hits []probe.CanaryHit
	err  error
}

// newListener waits for a canary's hello. Its goroutine ends when stdout does.
func newListener(ctx context.Context, stdin io.WriteCloser, stdout io.Reader) (*listener, error) {
	l := &listener{stdin: stdin, news: make(chan probe.CanaryLine, maxHits+probe.MaxProbes), done: make(chan struct{})}
	hello := make(chan probe.CanaryHello, 1)
	go func() {
		defer close(l.done)
		l.err = l.read(stdout, hello)
	}()
	select {
	case l.hello = <-hello:
		return l, nil
	case <-l.done:
		return nil, fmt.Errorf("it ended before it listened: %w", errors.Join(l.err, io.ErrUnexpectedEOF))
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for it to listen: %w", ctx.Err())
	}
}

func (l *listener) read(stdout io.Reader, hello chan<- probe.CanaryHello) error {
	lines := json.NewDecoder(bufio.NewReader(stdout))
	var first probe.CanaryLine
	if err := lines.Decode(&first); err != nil {
		return fmt.Errorf("read its hello: %w", err)
	}
	if first.Hello == nil {
		return errors.New("it does not begin with a hello")
	}
	hello <- *first.Hello
	for {
		var line probe.CanaryLine
		err := lines.Decode(&line)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read what reached it: %w", err)
		case line.Hit != nil:
			l.hits = append(l.hits, *line.Hit)
		case line.Result == nil:
			return errors.New("it says what is neither a hit nor a result")
		}
		select {
		case l.news <- line:
		default:
			return errors.New("it reports more than can be")
		}
	}
}

// probe has the canary make trials from where it is. Those whose payload it has heard
// are not waited for: that is what they are made for, and an engine's address
// translation may lose the answer to a datagram between the host's own addresses (seen on
// 20.10 for the bridge's).
func (l *listener) probe(ctx context.Context, trials []trial) (map[string]probe.Result, error) {
	defer context.AfterFunc(ctx, func() { l.stdin.Close() })() // so that nothing below waits for ever
	return collect(trials, func(request []byte, some []trial, take func(probe.Result)) error {
		awaited := make(map[string]bool)
		for _, a := range some {
			awaited[a.probe.ID] = true
		}
		if _, err := l.stdin.Write(request); err != nil {
			return err
		}
		for len(awaited) > 0 {
			var r probe.Result
			select {
			case line := <-l.news:
				if line.Hit != nil {
					line.Result = &probe.Result{ID: line.Hit.Payload, Reached: true, Detail: "the canary heard it"}
				}
				r = *line.Result
			case <-l.done:
				return fmt.Errorf("the canary has ended: %w", errors.Join(l.err, io.ErrUnexpectedEOF))
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if awaited[r.ID] {
				take(r)
				delete(awaited, r.ID)
			}
		}
		return nil
	})
}

// end has the canary end and returns what reached it. One that has ended before by
// itself, and may have missed something, is an error.
func (l *listener) end(ctx context.Context) ([]probe.CanaryHit, error) {
	select {
	case <-l.done:
		return nil, fmt.Errorf("it ended before it was told to: %w", errors.Join(l.err, io.ErrUnexpectedEOF))
	default:
	}
	if err := l.stdin.Close(); err != nil {
		return nil, fmt.Errorf("end it: %w", err)
	}
	select {
	case <-l.done:
		return l.hits, l.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for its end: %w", ctx.Err())
	}
}

// inSandbox runs a canary as the job of a sandbox. Its goroutine ends with the
// session.
func inSandbox(ctx context.Context, session *wire.Session) (*listener, error) {
	stdin, closeStdin := io.Pipe()
	out, stdout := io.Pipe()
	go func() {
		exit, err := session.Run(context.WithoutCancel(ctx), wire.Job{
			ID: "canary", Argv: []string{program, "canary"}, Dir: "/",
		}, stdin, wire.Handlers{Stdout: func(p []byte) { stdout.Write(p) }})
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("canary: %+v", exit)
		}
		stdout.CloseWithError(err) // nil means io.EOF
	}()
	l, err := newListener(ctx, closeStdin, out)
	if err != nil {
		out.Close() // so that the job's output blocks nobody
		return nil, fmt.Errorf("canary in the other cell: %w", err)
	}
	return l, nil
}
