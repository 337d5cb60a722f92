package entrypoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

var errJobOver = errors.New("the job ended before the update was done")

// Update has files written in the sandbox while its job runs, each in one step,
// and waits until they are. It may be called from any goroutine but the one that a
// handler of Run is called in. An error leaves the session and the job as they
// are; whether a file was written is then unknown.
func (s *Session) Update(ctx context.Context, files ...File) error {
	payload, err := json.Marshal(Update{Files: files})
	if err != nil {
		return fmt.Errorf("encode update: %w", err)
	}
	if len(payload) > updateSize {
		return fmt.Errorf("update has %d bytes on the wire, more than %d", len(payload), updateSize)
	}
	if err := s.update(ctx, payload); err != nil {
		return fmt.Errorf("update the sandbox: %w", err)
	}
	return nil
}

func (s *Session) update(ctx context.Context, payload []byte) error {
	s.updates.sending.Lock()
	u, err := s.expectUpdate()
	if err == nil {
		select {
		case s.out <- Frame{FrameUpdate, payload}:
		case <-s.closing:
			err = s.failure()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			s.updates.withdraw(u)
		}
	}
	s.updates.sending.Unlock()
	if err != nil {
		return err
	}
	select {
	case err := <-u.done:
		return err
	case <-s.closing:
		return s.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// expectUpdate registers an update of the running job.
func (s *Session) expectUpdate() (*pendingUpdate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, s.err
	case !s.live:
		return nil, errors.New("no job runs")
	}
	return s.updates.expect(), nil
}

// updates are those of a session that PID 1 has not answered yet, in the order
// in which they were sent.
type updates struct {
	sending sync.Mutex // held while one is registered and handed over, for the order

	mu      sync.Mutex // guards pending
	pending []*pendingUpdate
}

type pendingUpdate struct{ done chan error } // buffered; takes the first answer

func (u *updates) expect() *pendingUpdate {
	p := &pendingUpdate{done: make(chan error, 1)}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pending = append(u.pending, p)
	return p
}

// withdraw forgets an update that was never sent.
func (u *updates) withdraw(p *pendingUpdate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pending = slices.DeleteFunc(u.pending, func(q *pendingUpdate) bool { return q == p })
}

// abandon tells those who wait that they wait in vain; the answers may still
// come, so the updates stay pending.
func (u *updates) abandon(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pending {
		p.answer(err)
	}
}

func (p *pendingUpdate) answer(err error) {
	select {
	case p.done <- err:
	default:
	}
}

// take handles an updated frame; an error means that nobody asked for it.
func (u *updates) take(payload []byte) error {
	var done Updated
	if err := json.Unmarshal(payload, &done); err != nil {
		return fmt.Errorf("decode updated: %w", err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.pending) == 0 {
		return errors.New("answer to an update that was not sent")
	}
	var err error
	if done.Error != "" {
		err = fmt.Errorf("the sandbox says: %.512q", done.Error)
	}
	u.pending[0].answer(err)
	u.pending = u.pending[1:]
	return nil
}

// The following is PID 1's side.

const (
	// maxUpdates bounds the updates that PID 1 holds.
	maxUpdates = 16
	// maxUpdateError bounds the bytes of Updated.Error, so that it fits its frame
	// however it is escaped.
	maxUpdateError = 512
)

// queueUpdate takes an update over from the goroutine that must always hear a
// signal.
func (p *pid1) queueUpdate(payload []byte) error {
	var u Update
	if err := json.Unmarshal(payload, &u); err != nil {
		return fmt.Errorf("decode update: %w", err)
	}
	select {
	case p.updates <- u:
		return nil
	default:
		return fmt.Errorf("more than %d updates under way", maxUpdates)
	}
}

// runUpdates writes the files of updates until Main ends.
func (p *pid1) runUpdates(ctx context.Context) {
	for {
		select {
		case u := <-p.updates:
			var done Updated
			for _, f := range u.Files {
				if err := writeFile(f.Path, f.Mode, f.Content); err != nil {
					done.Error = err.Error()
					if len(done.Error) > maxUpdateError {
						done.Error = done.Error[:maxUpdateError]
					}
					break
				}
			}
			p.writeJSON(FrameUpdated, done) // a failure ends Main
		case <-ctx.Done():
			return
		}
	}
}
