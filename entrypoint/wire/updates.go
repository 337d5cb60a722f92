package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
)

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
