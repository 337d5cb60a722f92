package wire

import (
	"fmt"
	"io"
	"sync"
)

// A pump sends a job's standard input, never more than the peer has granted.
type pump struct {
	over chan struct{} // closed when the job is over
	more chan struct{} // credit was added

	sending sync.Mutex // held while a frame is handed over; stop waits for it

	mu     sync.Mutex // guards credit
	credit int
}

// grant adds credit; more than was ever sent is the peer's error.
func (p *pump) grant(n uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if uint64(n) > uint64(StdinWindow-p.credit) {
		return fmt.Errorf("window of %d bytes, %d are under way", n, StdinWindow-p.credit)
	}
	p.credit += int(n)
	select {
	case p.more <- struct{}{}:
	default:
	}
	return nil
}

// wait returns how many bytes may be sent, 0 when the job is over.
func (p *pump) wait() int {
	for {
		p.mu.Lock()
		n := p.credit
		p.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-p.more:
		case <-p.over:
			return 0
		}
	}
}

// run copies stdin to frames until its end or the job's. An error of stdin is
// its end: the process sees the end of the file.
func (p *pump) run(stdin io.Reader, out chan<- Frame) {
	if stdin == nil {
		p.send(nil, out)
		return
	}
	for {
		limit := min(p.wait(), ChunkSize)
		if limit == 0 {
			return
		}
		chunk := make([]byte, limit)
		n, err := stdin.Read(chunk)
		if n > 0 {
			p.mu.Lock()
			p.credit -= n
			p.mu.Unlock()
			if !p.send(chunk[:n], out) {
				return
			}
		}
		if err != nil {
			p.send(nil, out)
			return
		}
	}
}

// send hands a frame to the session's writer unless the job is over.
func (p *pump) send(payload []byte, out chan<- Frame) bool {
	p.sending.Lock()
	defer p.sending.Unlock()
	select {
	case <-p.over:
		return false
	default:
	}
	select {
	case out <- Frame{FrameStdin, payload}:
		return true
	case <-p.over:
		return false
	}
}

// stop ends the job: once it returns the pump sends nothing more, so that no
// late input reaches the next job. A Read of stdin that blocks is not waited for.
func (p *pump) stop() {
	close(p.over)
	p.sending.Lock()
	defer p.sending.Unlock()
}
