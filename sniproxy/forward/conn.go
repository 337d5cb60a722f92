package forward

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/internal/contain"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// requestIdle is how long a client may keep a connection open between requests.
const requestIdle = 60 * time.Second

// An conn is one client's connection to port 80, and the upstream that its
// last request went to.
type conn struct {
	v       *service
	client  *net.TCPConn
	br      *bufio.Reader
	in      *admission.HeadBuffer // of the request that is being served, until its head is sent
	up      *upstream             // nil if none
	dialled bool                  // a host was, for an earlier request

	recorded bool // the request that is being served has its record

	over atomic.Pointer[refusal.Refusal] // why the account of parked bytes has cut it
	held int64                           // when it was last looked at; guarded by v.mu
	last *lastWords                      // while they are said; guarded by v.mu
}

// serve forwards the requests of one connection, one after the other.
func (h *conn) serve(ctx context.Context, rec account.Record) {
	h.br = bufio.NewReaderSize(h.client, admission.HeadBytes)
	defer h.hangUp()
	defer contain.To(h) // what ends a request is contained there
	for first := true; h.serveRequest(ctx, rec, first); first = false {
	}
}

// serveRequest reads, judges and forwards one request; more means that another
// may follow. The deadline for its head is absolute, and for the first one it
// begins with the connection.
func (h *conn) serveRequest(ctx context.Context, rec account.Record, first bool) (more bool) {
	h.recorded = false
	defer func() {
		if p := recover(); p != nil {
			more = h.crashed(&rec, contain.New(p))
		}
	}()
	timeout := h.v.HelloTime()
	if first {
		_ = h.client.SetDeadline(rec.Time.Add(timeout)) // the read below fails if this did
	} else {
		_ = h.client.SetDeadline(time.Now().Add(requestIdle))
	}
	if err := awaitRequest(h.br); err != nil {
		if first || h.over.Load() != nil {
			h.finish(&rec, refusal.Unread(err, 0, "request", firewall.ReasonBadRequest))
		}
		return false
	}
	if !first {
		rec.Time = time.Now()
		_ = h.client.SetDeadline(rec.Time.Add(timeout))
	}
	defer h.freeHead()
	req, r := h.readRequest(&rec)
	if r != nil {
		return h.refuse(req, &rec, r)
	}
	if h.v.page.serves(req.host) {
		return h.servePage(req, &rec)
	}
	policy := h.v.PolicyNow()
	d := policy.Decide(req.host, Port)
	admission.Judged(&rec, policy, d)
	if !d.Allowed() {
		return h.refuse(req, &rec, &refusal.Refusal{Reason: d.Reason, Detail: d.Detail, Status: http.StatusForbidden})
	}
	_ = h.client.SetDeadline(time.Time{})
	return h.forward(ctx, req, newExchange(h.client, admission.Flow{Name: req.host, Port: Port, Policy: policy, Decision: d}), &rec)
}

func (h *conn) readRequest(rec *account.Record) (*request, *refusal.Refusal) {
	h.in = admission.NewHeadBuffer(h.v.Cell)
	if r := readHead(h.br, h.in); r != nil {
		return &request{}, r
	}
	req, r := parseRequest(h.in.B)
	rec.Host = req.shownHost
	return req, r
}

// freeHead gives back what the head of a request has taken.
func (h *conn) freeHead() {
	if h.in != nil {
		h.in.Free()
		h.in = nil
	}
}

// forward sends a request that is allowed and relays the response. A connection
// that stood idle may be dead without a sign: then, and only where nothing came
// back and a repetition does no harm, the request gets a fresh one.
func (h *conn) forward(ctx context.Context, req *request, f *exchange, rec *account.Record) (more bool) {
	req.rewrite(h.in)
	reuse := h.up != nil && h.up.name == req.host && h.up.policy == f.Policy && req.repeatable()
	for ; ; reuse = false {
		if !reuse {
			if r := h.dial(ctx, f); r != nil {
				return h.refuse(req, rec, r)
			}
		}
		rec.Upstream = h.up.addr
		up, sent, received := h.up, h.up.sent, h.up.received
		f.Upstream, f.up = up.addr, up.conn
		more, cut, r, again := h.underWay(f, req, reuse)
		rec.BytesUp += up.sent - sent
		rec.BytesDown += up.received - received
		switch {
		case cut != nil:
			h.finish(rec, cut)
			return false
		case again && ctx.Err() == nil && h.over.Load() == nil:
			continue
		case ctx.Err() != nil:
			rec.Detail = "cut by the gate"
		case r != nil && r.Reason != "":
			return h.refuse(req, rec, r)
		case r != nil:
			rec.Detail = r.Detail
		}
		h.finish(rec, nil)
		if r != nil {
			h.answer(req, r)
		}
		return more
	}
}

// underWay is exchange while a change of policy may cut it, and says why it did.
func (h *conn) underWay(f *exchange, req *request, reused bool) (more bool, cut, r *refusal.Refusal, again bool) {
	defer func() { cut = h.v.End(&f.Flow) }()
	h.v.Begin(&f.Flow)
	more, r, again = h.exchange(req, reused)
	return more, nil, r, again
}

// finish is the service's for a request, which has one record.
func (h *conn) finish(rec *account.Record, r *refusal.Refusal) {
	h.recorded = true
	if over := h.over.Load(); over != nil {
		r = over
	}
	h.v.Finish(rec, r)
}

// crashed ends a connection the handling of which has panicked.
func (h *conn) crashed(rec *account.Record, err error) (more bool) {
	socket.ResetConn(h.client)
	if h.recorded {
		h.Panicked(err)
		return false
	}
	h.finish(rec, refusal.Fault(err))
	return false
}

func (h *conn) Panicked(err error) { h.v.Panicked(err) }

// dial connects to the host of a request, if the budget has room for its name: only then
// does anything of the name reach the outside. The budget has counted one connection
// when the client came; each further one that its requests need counts as well.
func (h *conn) dial(ctx context.Context, f *exchange) (r *refusal.Refusal) {
	h.hangUp()
	if h.dialled {
		if over := h.v.Metered().Further(); over != "" {
			return refusal.OverBudget(over)
		}
	}
	h.dialled = true
	var over string
	if f.Meter, over = h.v.Metered().Reach(f.Name, f.Decision); over != "" {
		return refusal.OverBudget(over)
	}
	f.up, f.Upstream, r = h.v.dialer.Dial(ctx, h.v.Worker.Loop, reach.Target{Name: f.Name, Port: f.Port, Decision: f.Decision})
	if r != nil {
		return r
	}
	h.v.track(f.up, h)
	h.up = newUpstream(h.v.Cell, f)
	return nil
}

func (h *conn) hangUp() {
	if h.up != nil {
		h.v.drop(h.up.conn)
		h.up = nil
	}
}

// exchange sends one request over the upstream and relays its response. A
// refusal without a reason is a fault of the upstream, which the client is told
// about; again asks for a repetition over a fresh connection.
func (h *conn) exchange(req *request, reused bool) (more bool, r *refusal.Refusal, again bool) {
	up, before := h.up, h.up.received
	defer up.freeHead()
	if req.expect && req.framed {
		if _, err := io.WriteString(h.client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false, nil, false
		}
	}
	_, writeErr := h.up.Write(h.in.B)
	if !reused {
		h.freeHead() // it is not sent again
	}
	s := startSender(h, req)
	resp, err := h.up.response(req.method, h.interim)
	if err != nil {
		s.stop()
		silent := up.received == before
		h.hangUp()
		r := cmp.Or(s.crash, admission.Spent(up.meter))
		switch {
		case r != nil:
			return false, r, false
		case s.fault != nil:
			return false, s.fault, false
		case s.gone:
			return false, &refusal.Refusal{Detail: "the client went away"}, false
		case reused && silent:
			return false, nil, true
		}
		return false, &refusal.Refusal{Detail: firewall.Escape(cmp.Or(writeErr, err).Error(), 200), Status: http.StatusBadGateway}, false
	}
	last := !s.finished() || req.close
	err = h.relayResponse(req, resp, last)
	s.stop()
	if !req.repeatable() || resp.Close || err != nil || h.up.br.Buffered() > 0 {
		h.hangUp()
	}
	r = cmp.Or(s.crash, admission.Spent(up.meter))
	switch {
	case r != nil:
		socket.ResetConn(h.client)
		r.Status = 0 // the response has begun
		return false, r, false
	case err != nil:
		socket.ResetConn(h.client) // the client must not take the part for the whole
		return false, &refusal.Refusal{Detail: firewall.Escape(err.Error(), 200)}, false
	case last:
		h.sayLast(nil)
	}
	return !last, nil, false
}

func (h *conn) interim(resp *http.Response) error {
	return writeHead(h.client, resp, "")
}

// refuse records a refusal, tells the client and ends the connection: after a
// request that was not carried out, where the next one begins is not certain.
func (h *conn) refuse(req *request, rec *account.Record, r *refusal.Refusal) (more bool) {
	req.drop()
	h.finish(rec, r)
	h.answer(req, r)
	return false
}

// answer sends the response of the gate itself, and closes.
func (h *conn) answer(req *request, r *refusal.Refusal) {
	if r.Status == 0 {
		return
	}
	what := "could not forward the request"
	if r.Reason != "" {
		what = "refused the request: " + string(r.Reason)
	}
	body := fmt.Sprintf("sallyport: the policy gate %s\nhost: %s\n", what, req.shownHost)
	if r.Detail != "" {
		body += "detail: " + r.Detail + "\n"
	}
	if page := h.v.page.Name; !page.IsZero() && !req.host.IsZero() && r.Reason != "" {
		body += fmt.Sprintf("more: http://%s/why?host=%s&port=%d\n", page, req.host, Port)
	}
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n", r.Status, http.StatusText(r.Status), len(body))
	if r.Status == http.StatusMethodNotAllowed {
		head += "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n"
	}
	if req.method == http.MethodHead {
		body = ""
	}
	h.sayLast([]byte(head + "\r\n" + body))
}
