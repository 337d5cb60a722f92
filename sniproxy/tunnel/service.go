// Package tunnel passes on the TLS connections of one cell. It reads the name out of a
// ClientHello, has it judged, reaches the host, and then moves bytes, of which it knows
// nothing, in both directions until both have ended. It holds no key.
package tunnel

import (
	"context"
	"net"

	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
)

// Port is for what names are judged and where hosts are dialled, whatever port the
// listener has.
const Port = 443

// Serve tunnels the connections that ln accepts to the host that each ClientHello names.
// It ends as admission.Serve does.
func Serve(ctx context.Context, ln net.Listener, c *admission.Cell, d *reach.Dialer) error {
	return admission.Serve(ctx, ln, c, account.KindTLS, Port, &service{dialer: d})
}

// A service has the tunnels of one cell. All of it belongs to its loop.
type service struct {
	*admission.Service
	dialer *reach.Dialer
	mover  *mover

	tunnels tunnels
	patrol  patrol
	due     tunnelQueue
	pipes   int // in use
	sweeper sweeper
}

// Join is called once, on the loop.
func (v *service) Join(s *admission.Service) {
	v.Service = s
	v.mover = moverOf(s.Worker)
	v.patrol.v, v.patrol.timer.Owner = v, &v.patrol
	v.sweeper.v, v.sweeper.timer.Owner = v, &v.sweeper
}

// maxPooled bounds what a worker keeps of each kind for the connections to come:
// memory that was just in use is in the processor's cache, what the collector
// gives is not.
const maxPooled = 128

// A mover moves the bytes of all tunnels of one worker.
type mover struct {
	*admission.Worker
	schedule schedule
	moved    int // bytes, ever
	pool     struct {
		tunnels []*tunnel
		dials   []*reach.Dial
	}
}

// moverOf is the mover of a worker.
func moverOf(w *admission.Worker) *mover {
	m, ok := w.Work.(*mover)
	if !ok {
		m = &mover{Worker: w}
		w.Work = m
	}
	return m
}

// Work is called by the worker.
func (m *mover) Work() (more bool) {
	m.moveBytes()
	return m.schedule.waiting > 0
}

// newTunnel returns a tunnel without connections.
func (m *mover) newTunnel() *tunnel {
	var t *tunnel
	if n := len(m.pool.tunnels); n > 0 {
		t = m.pool.tunnels[n-1]
		m.pool.tunnels = m.pool.tunnels[:n-1]
	} else {
		t = new(tunnel)
	}
	t.loop, t.mover, t.timer.Owner, t.client.tunnel, t.up.tunnel = m.Worker, m, t, t, t
	return t
}

// freeTunnel takes back a tunnel that is over, and of which nobody else knows
// any more: a change of policy may have posted a word about one that it cut.
func (m *mover) freeTunnel(t *tunnel) {
	if t.queued || t.doomed.Load() || len(m.pool.tunnels) >= maxPooled {
		return
	}
	*t = tunnel{}
	m.pool.tunnels = append(m.pool.tunnels, t)
}

func (m *mover) newDial() *reach.Dial {
	n := len(m.pool.dials)
	if n == 0 {
		return new(reach.Dial)
	}
	d := m.pool.dials[n-1]
	m.pool.dials = m.pool.dials[:n-1]
	return d
}

// freeDial ends what a tunnel had to reach its host with.
func (t *tunnel) freeDial() {
	if t.dial == nil {
		return
	}
	if t.dial.Reusable() && len(t.mover.pool.dials) < maxPooled {
		*t.dial = reach.Dial{}
		t.mover.pool.dials = append(t.mover.pool.dials, t.dial)
	}
	t.dial = nil
}
