package sniproxy

import (
	"errors"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
)

// A stage is how far a tunnel has come.
type stage int8

const (
	stageOver   stage = iota
	stageHello        // reading the hello
	stageReach        // resolving and dialling
	stageRelay        // passing on bytes
	stageRefuse       // the record of its refusal is being delivered
	stageLinger       // the client is being told
)

// A tunnel is one TLS connection of a client, from its acceptance on. All of it
// but doomed belongs to its loop.
type tunnel struct {
	v    *service
	loop *loop
	flow
	rec        account.Record
	client, up socket

	stage     stage
	queued    bool // it is to have a turn
	watched   bool // its upstream has keep-alive
	overdrawn bool // it was cut by its budget
	in        *headBuffer
	scan      helloScanner
	reach     *reach // while in stageReach
	last      []byte // what the client is told
	drained   int    // bytes of it, dropped after that
	timer     timer

	over    *refusal // the account of parked bytes has cut it
	movedAt int64    // bytes that had moved when it was last looked at
	emptyAt int64    // ... when it was last found to hold nothing
	stalled bool     // none had moved then since the time before

	doomed     atomic.Bool // a change of policy cuts it
	prev, next *tunnel     // of the service
	after      *tunnel     // that has its turn later
}

// admitTLS starts the tunnel of a connection that is the cell's own and within the
// limit, and closes any other.
func (v *service) admitTLS(fd int, rec account.Record) {
	v.admitted.Add(1)
	if !v.Prefix.Contains(rec.Client.Addr()) {
		resetNow(fd)
		v.loop.clerk.add(delivery{v: v, rec: rec, turned: true,
			refusal: &refusal{reason: firewall.ReasonForeignClient, detail: "the client is outside the cell"}})
		return
	}
	if r := v.enter(); r != nil {
		closeNow(fd)
		v.loop.clerk.add(delivery{v: v, rec: rec, turned: true, refusal: r})
		return
	}
	t := v.loop.newTunnel()
	t.v, t.rec, t.stage = v, rec, stageHello
	t.client.fd, t.up.fd = fd, -1
	v.tunnels.add(t)
	v.loop.set(&t.timer, rec.Time.Add(v.helloTimeout()))
	if err := v.loop.register(fd, eventsIn, &t.client); err != nil {
		v.warn("a connection cannot be served", err)
		t.refuseSilently(readFault(err, 0, "hello", firewall.ReasonBadHello))
	}
}

// event is called when the kernel has said something about one of the sockets.
// What connections come about by is done at once; bytes are passed on in turn.
func (t *tunnel) event() {
	switch t.stage {
	case stageHello:
		t.readHello()
	case stageRelay:
		t.loop.due.add(t)
	case stageLinger:
		t.linger()
	}
}

// expired is called when what the tunnel waited for has not come.
func (t *tunnel) expired() {
	defer contain.To(t)
	switch t.stage {
	case stageHello:
		got := 0
		if t.in != nil {
			got = len(t.in.b)
		}
		t.refuse(readFault(os.ErrDeadlineExceeded, got, "hello", firewall.ReasonBadHello))
	case stageReach:
		t.late()
	case stageRelay:
		t.waited()
	case stageLinger:
		t.hangUp()
	}
}

// panicked lets go of a tunnel whose handling has panicked.
func (t *tunnel) Panicked(err error) {
	if t.stage == stageOver {
		return
	}
	t.loop.unset(&t.timer)
	t.client.close(true)
	t.up.close(true)
	switch t.stage {
	case stageReach:
		t.abandon()
		fallthrough
	case stageHello, stageRelay:
		if t.stage == stageRelay {
			t.rec.BytesUp, t.rec.BytesDown = t.client.taken, t.up.taken
			t.v.end(&t.flow)
		}
		t.loop.clerk.add(delivery{v: t.v, rec: t.rec, refusal: fault(err)})
		t.queued = true // it is in no state to be used again
		t.forget()
	default: // its record is another one
		t.v.Panicked(err)
		if t.stage == stageLinger {
			t.hangUp()
		}
	}
}

// begin passes on the hello over a connection that stands, and all else after it.
func (t *tunnel) begin() {
	t.stage = stageRelay
	t.v.patrol.expect()
	t.v.begin(&t.flow)
	if t.doomed.Load() {
		t.cut()
		return
	}
	hello := t.in.b
	n, err := writeNow(t.up.fd, hello)
	if err == unix.EAGAIN {
		err = nil
	}
	t.client.taken = int64(len(hello))
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

// kill cuts the tunnel for a change of policy: nothing passes that was not being
// passed already.
func (t *tunnel) kill() {
	t.doomed.Store(true)
	t.loop.post(func() {
		defer contain.To(t)
		if t.stage == stageRelay && t.doomed.Load() {
			t.cut()
		}
	})
}

// cut breaks both connections of a tunnel that stands.
func (t *tunnel) cut() {
	if !t.overdrawn {
		t.client.taken -= int64(t.client.waiting())
		t.up.taken -= int64(t.up.waiting())
	}
	t.client.close(true)
	t.up.close(true)
	t.end()
}

// end has a tunnel recorded that has ended, and why if it was cut.
func (t *tunnel) end() {
	v := t.v
	t.loop.unset(&t.timer)
	t.rec.BytesUp, t.rec.BytesDown = t.client.taken, t.up.taken
	r := v.end(&t.flow)
	switch {
	case r != nil:
	case t.over != nil:
		r = t.over
	case v.ctx.Err() != nil:
		t.rec.Detail = "cut by the gate"
	default:
		r = spent(t.meter)
	}
	v.loop.clerk.add(delivery{v: v, rec: t.rec, refusal: r})
	t.forget()
}

// forget ends what the service has of a tunnel. It is counted out when its record
// is delivered.
func (t *tunnel) forget() {
	t.stage = stageOver
	t.freeHello()
	t.freeReach()
	t.v.tunnels.remove(t)
	t.loop.freeTunnel(t)
}

// refuse has the client told why it gets no further, after that is recorded.
func (t *tunnel) refuse(r *refusal) {
	if t.over != nil {
		r = t.over
	}
	t.loop.unset(&t.timer)
	t.up.close(true)
	t.freeHello()
	t.freeReach()
	t.stage = stageRefuse
	if r.alert != 0 {
		t.last = r.alert.record()
	}
	t.loop.clerk.add(delivery{v: t.v, rec: t.rec, refusal: r, tunnel: t})
}

// refuseSilently is refuse for a client that is cut.
func (t *tunnel) refuseSilently(r *refusal) {
	t.client.close(true)
	t.refuse(r)
}

// refused goes on when the record of a refusal is delivered. The client is told
// so that it can read it: closing at once, with bytes of the client unread, would
// make the kernel send a reset that overtakes the words. What the client still
// sends is read and dropped, within bounds.
func (t *tunnel) refused() {
	t.stage = stageLinger
	defer contain.To(t)
	if t.client.fd < 0 || len(t.last) == 0 {
		t.hangUp()
		return
	}
	if _, err := writeNow(t.client.fd, t.last); err != nil || shutdownNow(t.client.fd) != nil {
		t.hangUp()
		return
	}
	t.loop.set(&t.timer, t.loop.now.Add(lingerTime))
	t.client.readable = true
	t.linger()
}

// linger drops what a refused client still sends, until its end.
func (t *tunnel) linger() {
	for t.client.readable {
		n, err := readNow(t.client.fd, t.loop.buf[:])
		switch t.drained += n; {
		case err == unix.EAGAIN:
			t.client.readable = false
		case err != nil || t.drained >= maxDrain:
			t.hangUp()
			return
		}
	}
}

// hangUp ends a refused connection.
func (t *tunnel) hangUp() {
	t.loop.unset(&t.timer)
	t.client.close(false)
	v := t.v
	t.forget()
	v.leave()
	v.admitted.Done()
}

// endNow cuts the tunnel because its service ends.
func (t *tunnel) endNow() {
	switch t.stage {
	case stageHello:
		got := 0
		if t.in != nil {
			got = len(t.in.b)
		}
		t.refuseSilently(readFault(net.ErrClosed, got, "hello", firewall.ReasonBadHello))
	case stageReach:
		t.client.close(true)
		aside := t.reach.cancel != nil
		if t.abandon(); !aside { // else it will say so itself
			t.refuse(dialFault(errors.New("the gate has cut the connection")))
		}
	case stageRelay:
		t.cut()
	case stageRefuse:
		t.client.close(true)
	case stageLinger:
		t.hangUp()
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
