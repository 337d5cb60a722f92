package tunnel

import (
	"golang.org/x/sys/unix"

	"sallyport/firewall"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// maxShownHost bounds, in bytes, how much of a bad host name a record shows.
const maxShownHost = 100

// readHello reads until the client's hello is complete, or refused; all that came
// is in t.in, also what follows the hello. The deadline is absolute and ends with
// the hello.
func (t *tunnel) readHello() {
	if t.in == nil {
		t.in = admission.NewHeadBuffer(t.v.Cell)
	}
	in := t.in
	for t.client.readable {
		room := in.B[len(in.B):cap(in.B)]
		n, err := socket.Read(t.client.fd, room)
		if err == unix.EAGAIN || n < len(room) && !t.client.shortReads {
			t.client.readable = false
		}
		in.B = in.B[:len(in.B)+n]
		done, r := t.scan.scan(in.B)
		switch {
		case r != nil:
		case done:
			t.judge()
			return
		case err == unix.EAGAIN:
			continue
		case err != nil:
			r = refusal.Unread(err, len(in.B), "hello", firewall.ReasonBadHello)
		case len(in.B) == cap(in.B):
			r = in.Grow(maxRawHello)
		}
		if r != nil {
			t.refuse(r)
			return
		}
	}
	if len(in.B) == 0 {
		t.freeHello()
	}
}

func (t *tunnel) freeHello() {
	if t.in != nil {
		t.in.Free()
		t.in = nil
	}
}

// judge asks the policy about the name in a hello that is complete.
func (t *tunnel) judge() {
	t.loop.Unset(&t.timer)
	h, r := parseHello(t.scan.message(t.in.B))
	if r == nil {
		r = t.judgeHello(h)
	}
	if r != nil {
		t.refuse(r)
		return
	}
	t.reachOut()
}

func (t *tunnel) judgeHello(h hello) *refusal.Refusal {
	if h.name == nil {
		return &refusal.Refusal{Reason: firewall.ReasonNoSNI, Detail: "the hello names no host", Alert: refusal.MissingExtension}
	}
	name, r := hostName(h.name)
	if r != nil {
		t.rec.Host = firewall.Escape(string(h.name), maxShownHost)
		return r
	}
	t.rec.Host = name.String()
	policy := t.v.PolicyNow()
	d := policy.Decide(name, Port)
	admission.Judged(&t.rec, policy, d)
	switch {
	case !d.Allowed():
		return &refusal.Refusal{Reason: d.Reason, Detail: d.Detail, Alert: refusal.AccessDenied}
	case h.ech && !policy.PassECH():
		return &refusal.Refusal{Reason: firewall.ReasonECH,
			Detail: "an encrypted ClientHello, or GREASE that looks like one", Alert: refusal.AccessDenied}
	}
	t.Flow = admission.Flow{Name: name, Port: Port, ECH: h.ech, Policy: policy, Decision: d, Owner: t}
	return nil
}
