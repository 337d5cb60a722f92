package tunnel

import (
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// A stage is how far a tunnel has come.
type stage int8

const (
	stageOver   stage = iota
	stageHello        // reading the hello
	stageDial         // resolving and dialling
	stageRelay        // passing on bytes
	stageRefuse       // the record of its refusal is being delivered
	stageLinger       // the client is being told
)

// A tunnel is one TLS connection of a client, from its acceptance on. All of it
// but doomed belongs to its loop.
type tunnel struct {
	v     *service
	loop  *admission.Worker
	mover *mover
	admission.Flow
	rec        account.Record
	client, up end

	stage     stage
	queued    bool // it is to have a turn
	watched   bool // its upstream has keep-alive
	overdrawn bool // it was cut by its budget
	in        *admission.HeadBuffer
	scan      helloScanner
	dial      *reach.Dial      // while in stageDial
	linger    admission.Linger // what the client is told at the end
	drained   int              // bytes for an end that is gone
	timer     evloop.Timer

	over    *refusal.Refusal // the account of parked bytes has cut it
	movedAt int64            // bytes that had moved when it was last looked at
	emptyAt int64            // ... when it was last found to hold nothing
	stalled bool             // none had moved then since the time before

	doomed     atomic.Bool // a change of policy cuts it
	prev, next *tunnel     // of the service
	queuedNext *tunnel     // that has its turn later
}

// Start starts the tunnel of a connection that is let in.
func (v *service) Start(fd int, rec account.Record) {
	t := v.mover.newTunnel()
	t.v, t.rec, t.stage = v, rec, stageHello
	t.client.fd, t.up.fd = fd, -1
	v.tunnels.add(t)
	t.loop.Set(&t.timer, rec.Time.Add(v.HelloTime()))
	if err := t.loop.Register(fd, eventsIn, &t.client); err != nil {
		v.Warn("a connection cannot be served", err)
		t.refuseSilently(refusal.Unread(err, 0, "hello", firewall.ReasonBadHello))
	}
}

// event is called when the kernel has said something about one of the sockets.
// What connections come about by is done at once; bytes are passed on in turn.
func (t *tunnel) event() {
	switch t.stage {
	case stageHello:
		t.readHello()
	case stageRelay:
		t.mover.schedule.add(t)
	}
}

// Expired is called when what the tunnel waited for has not come.
func (t *tunnel) Expired() {
	defer contain.To(t)
	switch t.stage {
	case stageHello:
		got := 0
		if t.in != nil {
			got = len(t.in.B)
		}
		t.refuse(refusal.Unread(os.ErrDeadlineExceeded, got, "hello", firewall.ReasonBadHello))
	case stageRelay:
		t.remainderLate()
	}
}

// panicked lets go of a tunnel whose handling has panicked.
func (t *tunnel) Panicked(err error) {
	if t.stage == stageOver {
		return
	}
	t.loop.Unset(&t.timer)
	t.client.close(true)
	t.up.close(true)
	switch t.stage {
	case stageDial:
		t.dial.Abandon()
		fallthrough
	case stageHello, stageRelay:
		if t.stage == stageRelay {
			t.rec.BytesUp, t.rec.BytesDown = t.client.counted, t.up.counted
			t.v.End(&t.Flow)
		}
		t.loop.Recorder.Add(admission.Delivery{Service: t.v.Service, Record: t.rec, Refusal: refusal.Fault(err)})
		t.queued = true // it is in no state to be used again
		t.forget()
	default: // its record is another one
		t.v.Panicked(err)
		if t.stage == stageLinger {
			t.linger.HangUp()
		}
	}
}

// begin passes on the hello over a connection that stands, and all else after it.
func (t *tunnel) begin() {
	t.stage = stageRelay
	t.v.patrol.expect()
	t.v.Begin(&t.Flow)
	if t.doomed.Load() {
		t.cut()
		return
	}
	hello := t.in.B
	n, err := socket.Write(t.up.fd, hello)
	if err == unix.EAGAIN {
		err = nil
	}
	t.client.counted = int64(len(hello))
	if n < len(hello) {
		t.client.rest = append([]byte(nil), hello[n:]...)
		if err == nil {
			err = t.up.awaitRoom()
		}
	}
	t.freeHello()
	if err != nil {
		t.cut()
		return
	}
	t.relay()
}

// CutByPolicy cuts the tunnel for a change of policy: nothing passes that was not being
// passed already.
func (t *tunnel) CutByPolicy() {
	t.doomed.Store(true)
	t.loop.Post(func() {
		defer contain.To(t)
		if t.stage == stageRelay && t.doomed.Load() {
			t.cut()
		}
	})
}

// cut breaks both connections of a tunnel that stands.
func (t *tunnel) cut() {
	if !t.overdrawn {
		t.client.counted -= int64(t.client.waiting())
		t.up.counted -= int64(t.up.waiting())
	}
	t.client.close(true)
	t.up.close(true)
	t.end()
}

// end has a tunnel recorded that has ended, and why if it was cut.
func (t *tunnel) end() {
	v := t.v
	t.loop.Unset(&t.timer)
	t.rec.BytesUp, t.rec.BytesDown = t.client.counted, t.up.counted
	r := v.End(&t.Flow)
	switch {
	case r != nil:
	case t.over != nil:
		r = t.over
	case v.Ctx.Err() != nil:
		t.rec.Detail = "cut by the gate"
	default:
		r = admission.Spent(t.Meter)
	}
	t.loop.Recorder.Add(admission.Delivery{Service: v.Service, Record: t.rec, Refusal: r})
	t.forget()
}

// forget ends what the service has of a tunnel. It is counted out when its record
// is delivered.
func (t *tunnel) forget() {
	t.stage = stageOver
	t.freeHello()
	t.freeDial()
	t.v.tunnels.remove(t)
	t.mover.freeTunnel(t)
}

// refuse has the client told why it gets no further, after that is recorded.
func (t *tunnel) refuse(r *refusal.Refusal) {
	if t.over != nil {
		r = t.over
	}
	t.loop.Unset(&t.timer)
	t.up.close(true)
	t.freeHello()
	t.freeDial()
	t.stage = stageRefuse
	if r.Alert != 0 {
		t.linger.Words = r.Alert.Record()
	}
	t.loop.Recorder.Add(admission.Delivery{Service: t.v.Service, Record: t.rec, Refusal: r, Next: t})
}

// refuseSilently is refuse for a client that is cut.
func (t *tunnel) refuseSilently(r *refusal.Refusal) {
	t.client.close(true)
	t.refuse(r)
}

// Recorded is called when the record of a refusal is delivered.
func (t *tunnel) Recorded() { t.loop.Post(t.refused) }

// refused goes on then.
func (t *tunnel) refused() {
	t.stage = stageLinger
	defer contain.To(t)
	fd := t.client.fd
	t.client.fd = -1
	t.linger.Start(t.loop, fd, t)
}

// Lingered ends a refused connection.
func (t *tunnel) Lingered() {
	v := t.v
	t.forget()
	v.Left()
}

// reachOut begins to reach the host of a tunnel that is allowed.
func (t *tunnel) reachOut() {
	v := t.v
	var over string
	if t.Meter, over = v.Metered().Reach(t.Name, t.Decision); over != "" {
		t.refuse(refusal.OverBudget(over))
		return
	}
	t.stage = stageDial
	v.sweepSoon()
	t.dial = t.mover.newDial()
	t.dial.Start(v.Ctx, t.loop.Loop, v.dialer, reach.Target{Name: t.Name, Port: t.Port, Decision: t.Decision}, t)
}

// Dialled goes on with a connection to the host, or with why there is none.
func (t *tunnel) Dialled(c reach.Conn, r *refusal.Refusal) {
	t.Upstream, t.rec.Upstream = c.Addr, c.Addr
	t.freeDial()
	if c.FD >= 0 {
		if err := t.adopt(c); err != nil {
			r = reach.Refused(err)
		}
	}
	switch {
	case r != nil:
	case t.over != nil:
		r = t.over
	case t.v.Ctx.Err() != nil:
		r = reach.Refused(t.v.Ctx.Err())
	case !t.Meter.Count(true, len(t.in.B)):
		r = admission.Spent(t.Meter)
	}
	if r != nil {
		t.refuse(r)
		return
	}
	t.begin()
}

// adopt makes a connection the tunnel's own, which is registered or not.
func (t *tunnel) adopt(c reach.Conn) error {
	t.up.fd = c.FD
	if c.Registered {
		t.up.out = true // as it is registered
		t.up.note(c.Events)
		t.loop.HandOver(c.FD, &t.up)
		return nil
	}
	if err := t.loop.Register(c.FD, eventsIn, &t.up); err != nil {
		socket.Close(c.FD)
		t.up.fd = -1
		return err
	}
	return nil
}

// endNow cuts the tunnel because its service ends.
func (t *tunnel) endNow() {
	switch t.stage {
	case stageHello:
		got := 0
		if t.in != nil {
			got = len(t.in.B)
		}
		t.refuseSilently(refusal.Unread(net.ErrClosed, got, "hello", firewall.ReasonBadHello))
	case stageDial:
		t.client.close(true)
		if !t.dial.Cancel() {
			t.refuse(reach.Cut())
		}
	case stageRelay:
		t.cut()
	case stageRefuse:
		t.client.close(true)
	case stageLinger:
		t.linger.HangUp()
	}
}

// Cut ends all tunnels of a service that ends, and what looks after them.
func (v *service) Cut() {
	v.Worker.Unset(&v.patrol.timer)
	defer v.Worker.Unset(&v.sweeper.timer)
	for t := v.tunnels.first; t != nil; {
		next := t.next
		func() {
			defer contain.To(t)
			t.endNow()
		}()
		t = next
	}
}

// tunnels are those of a service.
type tunnels struct{ first *tunnel }

func (ts *tunnels) add(t *tunnel) {
	if t.next = ts.first; t.next != nil {
		t.next.prev = t
	}
	ts.first = t
}

func (ts *tunnels) remove(t *tunnel) {
	switch {
	case t.prev != nil:
		t.prev.next = t.next
	case ts.first == t:
		ts.first = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}
