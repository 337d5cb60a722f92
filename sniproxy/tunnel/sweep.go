package tunnel

import (
	"sallyport/internal/contain"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// A sweeper looks at the tunnels of a service, on its loop.
type sweeper struct {
	v     *service
	timer evloop.Timer
	all   []admission.Holding
}

// sweepSoon has the tunnels of a service looked at.
func (v *service) sweepSoon() {
	if !v.sweeper.timer.IsSet() {
		v.Worker.Set(&v.sweeper.timer, v.Worker.Now.Add(admission.SweepEvery))
	}
}

// Expired is called by the loop.
func (s *sweeper) Expired() {
	defer contain.To(s.v)
	s.all = s.all[:0]
	for t := s.v.tunnels.first; t != nil; t = t.next {
		if n := t.holds(); n > 0 {
			s.all = append(s.all, admission.Holding{Bytes: n, Stalled: t.stalled, Cut: t.overfull})
		}
	}
	again := len(s.all) > 0
	s.v.Settle(s.all)
	clear(s.all)
	if again {
		s.v.sweepSoon()
	}
}

// holds is what a tunnel holds, and 0 where that is as good as nothing.
func (t *tunnel) holds() int64 {
	moved := t.client.counted + t.up.counted
	t.stalled, t.movedAt = t.movedAt == moved, moved
	waiting := int64(t.client.waiting() + t.up.waiting())
	quiet := t.stage == stageRelay && !t.client.vanished && !t.up.vanished && waiting == 0 && moved-t.emptyAt <= admission.SweepAbove
	if quiet || t.stage == stageHello { // whose bytes are on another account
		return 0
	}
	n := waiting
	for _, fd := range [...]int{t.client.fd, t.up.fd, t.linger.FD()} {
		if fd >= 0 {
			held, _ := socket.Held(fd) // ClientOptions has found that it can be asked
			n += held
		}
	}
	if n <= admission.SweepAbove && t.stage == stageRelay {
		t.emptyAt = moved
		return 0
	}
	return n
}

// overfull cuts a tunnel that holds too much, however far it has come.
func (t *tunnel) overfull(r *refusal.Refusal) {
	defer contain.To(t)
	t.over = r
	switch t.stage {
	case stageRelay:
		t.cut()
	case stageDial:
		t.client.close(true)
		if !t.dial.Cancel() {
			t.refuse(r)
		}
	case stageRefuse:
		t.client.close(true)
	case stageLinger:
		t.linger.HangUp()
	}
}
