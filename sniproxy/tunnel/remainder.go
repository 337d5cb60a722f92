package tunnel

import (
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/contain"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/socket"
)

// How an end of a tunnel is treated that broke after it had finished: its host
// has closed it, and then forgotten it, as every kernel does after a minute; the
// next probe of keep-alive, or the next word to it, is answered by a reset. All
// that it has said is in the gate by then, and without a tunnel the other end
// would get to read it.

// remainderTime bounds for how long bytes of a client that has vanished wait for the far
// side; about what a kernel gives those of a program that has ended. A far side
// that is gone has no such bound, since there still is a client that wants them.
var remainderTime = 5 * time.Minute

// confirmEvery is how often it is asked whether they have arrived.
const confirmEvery = time.Second

// noteVanished asks what is wrong with a socket of which the end was read.
func (s *end) noteVanished() {
	if s.broken && s.eof && !s.vanished {
		s.vanished = socket.Fault(s.fd) != nil
	}
}

// fault returns what is wrong with a socket of which the end was not read, unless
// it has come: then it is gone.
func (s *end) fault() error {
	if s.vanished {
		return nil
	}
	err := socket.Fault(s.fd)
	return s.refuses(err)
}

// refuses returns the error of passing something to s, or with it, unless that
// says that s is gone: a reset after the end is EPIPE, one before it is not.
func (s *end) refuses(err error) error {
	if err == unix.EPIPE || err != nil && s.eof {
		s.vanished = true
		return nil
	}
	return err
}

// discard drops what is left to pass on of what src said to an end that is gone,
// so that closing src need not be a reset. A client that goes on and on is let wait.
func (t *tunnel) discard(src *end) error {
	src.counted -= int64(src.waiting())
	src.drop()
	for src.readable && t.drained < admission.MaxDrain {
		n, err := socket.Read(src.fd, t.loop.Buffer[:])
		if t.drained += n; err != nil {
			if err = src.stopped(err); err != nil {
				return err
			}
		}
	}
	src.passed = src.eof
	return nil
}

// passRemainder goes on with a tunnel one end of which is gone, until what that said has
// arrived at the other; more says that there is some to read.
func (t *tunnel) passRemainder(more bool) {
	lost, left := &t.up, &t.client
	if t.client.vanished {
		lost, left = left, lost
	}
	switch {
	case left.vanished:
		t.cut()
	case more:
		t.mover.schedule.add(t)
	case !lost.passed: // until there is room
		if t.client.vanished && !t.timer.IsSet() {
			t.loop.Set(&t.timer, t.loop.Now.Add(remainderTime))
		}
	case left == &t.up || socket.Unsent(left.fd) == 0:
		// A far side gets the rest from the kernel. A client may still speak, and a
		// kernel that has to drop it would drop the rest as well.
		t.client.close(false)
		t.up.close(false)
		t.end()
	default:
		t.loop.Set(&t.timer, t.loop.Now.Add(confirmEvery))
	}
}

// remainderLate is called when bytes of an end that is gone had their time.
func (t *tunnel) remainderLate() {
	if t.client.vanished {
		t.cut()
		return
	}
	t.relay()
}

// A patrol sets keep-alive on the upstreams of a service's tunnels, once they stand
// for up to an interval of it. Most are over by then, without the four calls.
type patrol struct {
	v     *service
	timer evloop.Timer
}

// expect has it come for a tunnel that begins.
func (p *patrol) expect() {
	if !p.timer.IsSet() {
		p.v.Worker.Set(&p.timer, p.v.Worker.Now.Add(socket.KeepAlive.Interval))
	}
}

func (p *patrol) Expired() {
	for t := p.v.tunnels.first; t != nil; {
		next := t.next
		if t.stage == stageRelay && !t.watched {
			t.watch()
		}
		t = next
	}
}

// watch cuts a tunnel that nothing would end.
func (t *tunnel) watch() {
	defer contain.To(t)
	t.watched = true
	if err := socket.SetKeepAlive(t.up.fd); err != nil {
		t.cut()
	}
}
