package sniproxy

import (
	"context"
	"net"

	"sallyport/firewall"
)

// maxShownHost bounds, in bytes, how much of a bad host name a record shows.
const maxShownHost = 100

// serveTLS reads the hello of one connection, judges it and, where it is
// allowed, returns the tunnel to the host that it names, for the caller to start.
func serveTLS(v *service, ctx context.Context, client *net.TCPConn, rec firewall.Record) *tunnel {
	in := newHeadBuffer(v.Server)
	defer in.free()
	f, r := v.judgeHello(client, in, &rec)
	if r == nil {
		r = v.reach(ctx, f)
		rec.Upstream = f.upstream
	}
	var t *tunnel
	if r == nil {
		v.track(f.up)
		defer func() {
			if t == nil {
				v.drop(f.up)
			}
		}()
		if !f.meter.Took(true, len(in.b)) {
			r = spent(f.meter)
		}
	}
	if r != nil {
		v.finish(&rec, r)
		if r.alert != 0 {
			lastWords(client, r.alert.record())
		}
		return nil
	}
	v.begin(f)
	n, err := f.up.Write(in.b)
	rec.BytesUp = int64(n)
	if err != nil {
		v.finishTunnel(ctx, f, &rec)
		return nil
	}
	t = &tunnel{client: client, up: f.up, took: f.meter.Took}
	t.over = func() {
		rec.BytesUp += t.sent
		rec.BytesDown = t.received
		v.finishTunnel(ctx, f, &rec)
		v.drop(f.up)
	}
	return t
}

// finishTunnel records a tunnel that has ended, and why if it was cut.
func (v *service) finishTunnel(ctx context.Context, f *flow, rec *firewall.Record) {
	r := v.end(f)
	switch {
	case r != nil:
	case ctx.Err() != nil:
		rec.Detail = "cut by the gate"
	default:
		r = spent(f.meter)
	}
	v.finish(rec, r)
}

// judgeHello reads a hello and asks the policy about the name in it.
func (v *service) judgeHello(client *net.TCPConn, in *headBuffer, rec *firewall.Record) (*flow, *refusal) {
	h, r := v.readHello(client, in, rec)
	if r != nil {
		return nil, r
	}
	if h.name == nil {
		return nil, &refusal{reason: firewall.ReasonNoSNI,
			detail: "the hello names no host", alert: alertMissingExtension}
	}
	rec.Host = firewall.Escape(string(h.name), maxShownHost)
	name, r := hostName(h.name)
	if r != nil {
		return nil, r
	}
	rec.Host = name.String()
	policy := v.policy()
	d := policy.Decide(name, portTLS)
	judged(rec, d)
	switch {
	case !d.Allowed():
		return nil, &refusal{reason: d.Reason, detail: d.Detail, alert: alertAccessDenied}
	case h.ech && !policy.PassECH():
		return nil, &refusal{reason: firewall.ReasonECH,
			detail: "an encrypted ClientHello, or GREASE that looks like one", alert: alertAccessDenied}
	}
	return &flow{name: name, port: portTLS, ech: h.ech, policy: policy, decision: d, client: client}, nil
}

// readHello reads from client until its ClientHello is complete, or refused, or
// late; all that came is in.b, also what follows the hello. The deadline is
// absolute and ends with the hello.
func (v *service) readHello(client *net.TCPConn, in *headBuffer, rec *firewall.Record) (hello, *refusal) {
	if err := client.SetReadDeadline(rec.Time.Add(v.helloTimeout())); err != nil {
		return hello{}, readFault(err, 0, "hello", firewall.ReasonBadHello)
	}
	var scan helloScanner
	for {
		n, err := client.Read(in.b[len(in.b):cap(in.b)])
		in.b = in.b[:len(in.b)+n]
		done, r := scan.scan(in.b)
		switch {
		case r != nil:
			return hello{}, r
		case done:
			if err := keepOpen(client); err != nil {
				return hello{}, readFault(err, len(in.b), "hello", firewall.ReasonBadHello)
			}
			return parseHello(scan.message(in.b))
		case err != nil:
			return hello{}, readFault(err, len(in.b), "hello", firewall.ReasonBadHello)
		case len(in.b) == cap(in.b):
			if r := in.grow(maxRawHello); r != nil {
				return hello{}, r
			}
		}
	}
}
