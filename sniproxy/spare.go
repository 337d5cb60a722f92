package sniproxy

// maxSpare bounds what a loop keeps of each kind for the connections to come:
// memory that was just in use is in the processor's cache, what the collector
// gives is not.
const maxSpare = 128

// spares are what a loop keeps.
type spares struct {
	tunnels []*tunnel
	reaches []*reach
}

// newTunnel returns a tunnel without connections.
func (l *loop) newTunnel() *tunnel {
	var t *tunnel
	if n := len(l.spare.tunnels); n > 0 {
		t = l.spare.tunnels[n-1]
		l.spare.tunnels = l.spare.tunnels[:n-1]
	} else {
		t = new(tunnel)
	}
	t.loop, t.timer.owner, t.client.tunnel, t.up.tunnel = l, t, t, t
	return t
}

// freeTunnel takes back a tunnel that is over, and of which nobody else knows
// any more: a change of policy may have posted a word about one that it cut.
func (l *loop) freeTunnel(t *tunnel) {
	if t.queued || t.doomed.Load() || len(l.spare.tunnels) >= maxSpare {
		return
	}
	*t = tunnel{}
	l.spare.tunnels = append(l.spare.tunnels, t)
}

func (l *loop) newReach() *reach {
	n := len(l.spare.reaches)
	if n == 0 {
		return new(reach)
	}
	d := l.spare.reaches[n-1]
	l.spare.reaches = l.spare.reaches[:n-1]
	return d
}

// freeReach ends what a tunnel had to reach its host with.
func (t *tunnel) freeReach() {
	if t.reach == nil {
		return
	}
	if t.reach.cancel == nil && len(t.loop.spare.reaches) < maxSpare {
		*t.reach = reach{}
		t.loop.spare.reaches = append(t.loop.spare.reaches, t.reach)
	}
	t.reach = nil
}
