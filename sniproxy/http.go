package sniproxy

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
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/socket"
)

// requestIdle is how long a client may keep a connection open between requests.
const requestIdle = 60 * time.Second

// An httpConn is one client's connection to port 80, and the upstream that its
// last request went to.
type httpConn struct {
	v       *service
	client  *net.TCPConn
	br      *bufio.Reader
	in      *headBuffer // of the request that is being served, until its head is sent
	up      *upstream   // nil if none
	dialled bool        // a host was, for an earlier request

	recorded bool // the request that is being served has its record

	over atomic.Pointer[refusal.Refusal] // why the account of parked bytes has cut it
	held int64                           // when it was last looked at; guarded by v.mu
	last *lastWords                      // while they are said; guarded by v.mu
}

// startHTTP serves a connection that is let in.
func (v *service) startHTTP(fd int, rec account.Record) {
	go func() {
		defer v.admitted.Done()
		defer v.leave()
		client, err := socket.Conn(fd)
		if err != nil {
			v.warn("a connection cannot be served", err)
			v.finish(&rec, refusal.Unread(err, 0, "request", firewall.ReasonBadRequest))
			return
		}
		h := &httpConn{v: v, client: client}
		v.track(client, h)
		defer v.drop(client)
		h.serve(v.ctx, rec)
	}()
}

// serve forwards the requests of one connection, one after the other.
func (h *httpConn) serve(ctx context.Context, rec account.Record) {
	h.br = bufio.NewReaderSize(h.client, headBytes)
	defer h.hangUp()
	defer contain.To(h) // what ends a request is contained there
	for first := true; h.serveRequest(ctx, rec, first); first = false {
	}
}

// serveRequest reads, judges and forwards one request; more means that another
// may follow. The deadline for its head is absolute, and for the first one it
// begins with the connection.
func (h *httpConn) serveRequest(ctx context.Context, rec account.Record, first bool) (more bool) {
	h.recorded = false
	defer func() {
		if p := recover(); p != nil {
			more = h.crashed(&rec, contain.New(p))
		}
	}()
	timeout := h.v.helloTimeout()
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
	if h.v.Page.serves(req.host) {
		return h.servePage(req, &rec)
	}
	policy := h.v.policy()
	d := policy.Decide(req.host, portHTTP)
	judged(&rec, policy, d)
	if !d.Allowed() {
		return h.refuse(req, &rec, &refusal.Refusal{Reason: d.Reason, Detail: d.Detail, Status: http.StatusForbidden})
	}
	_ = h.client.SetDeadline(time.Time{})
	return h.forward(ctx, req, &flow{name: req.host, port: portHTTP, policy: policy, decision: d, client: h.client}, &rec)
}

func (h *httpConn) readRequest(rec *account.Record) (*request, *refusal.Refusal) {
	h.in = newHeadBuffer(h.v.Server)
	if r := readHead(h.br, h.in); r != nil {
		return &request{}, r
	}
	req, r := parseRequest(h.in.b)
	rec.Host = req.shownHost
	return req, r
}

// freeHead gives back what the head of a request has taken.
func (h *httpConn) freeHead() {
	if h.in != nil {
		h.in.free()
		h.in = nil
	}
}

// forward sends a request that is allowed and relays the response. A connection
// that stood idle may be dead without a sign: then, and only where nothing came
// back and a repetition does no harm, the request gets a fresh one.
func (h *httpConn) forward(ctx context.Context, req *request, f *flow, rec *account.Record) (more bool) {
	req.rewrite(h.in)
	reuse := h.up != nil && h.up.name == req.host && h.up.policy == f.policy && req.repeatable()
	for ; ; reuse = false {
		if !reuse {
			if r := h.dial(ctx, f); r != nil {
				return h.refuse(req, rec, r)
			}
		}
		rec.Upstream = h.up.addr
		up, sent, received := h.up, h.up.sent, h.up.received
		f.upstream, f.up = up.addr, up.conn
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
func (h *httpConn) underWay(f *flow, req *request, reused bool) (more bool, cut, r *refusal.Refusal, again bool) {
	defer func() { cut = h.v.end(f) }()
	h.v.begin(f)
	more, r, again = h.exchange(req, reused)
	return more, nil, r, again
}

// finish is the service's for a request, which has one record.
func (h *httpConn) finish(rec *account.Record, r *refusal.Refusal) {
	h.recorded = true
	if over := h.over.Load(); over != nil {
		r = over
	}
	h.v.finish(rec, r)
}

// crashed ends a connection the handling of which has panicked.
func (h *httpConn) crashed(rec *account.Record, err error) (more bool) {
	socket.ResetConn(h.client)
	if h.recorded {
		h.Panicked(err)
		return false
	}
	h.finish(rec, refusal.Fault(err))
	return false
}

func (h *httpConn) Panicked(err error) { h.v.Panicked(err) }

// dial connects to the host of a request, if the budget has room for its name: only then
// does anything of the name reach the outside. The budget has counted one connection
// when the client came; each further one that its requests need counts as well.
func (h *httpConn) dial(ctx context.Context, f *flow) (r *refusal.Refusal) {
	h.hangUp()
	if h.dialled {
		if over := h.v.meter().Further(); over != "" {
			return refusal.OverBudget(over)
		}
	}
	h.dialled = true
	var over string
	if f.meter, over = h.v.meter().Reach(f.name, f.decision); over != "" {
		return refusal.OverBudget(over)
	}
	f.up, f.upstream, r = h.v.dialer.Dial(ctx, h.v.loop.Loop, reach.Target{Name: f.name, Port: f.port, Decision: f.decision})
	if r != nil {
		return r
	}
	h.v.track(f.up, h)
	h.up = newUpstream(h.v.Server, f)
	return nil
}

func (h *httpConn) hangUp() {
	if h.up != nil {
		h.v.drop(h.up.conn)
		h.up = nil
	}
}

// exchange sends one request over the upstream and relays its response. A
// refusal without a reason is a fault of the upstream, which the client is told
// about; again asks for a repetition over a fresh connection.
func (h *httpConn) exchange(req *request, reused bool) (more bool, r *refusal.Refusal, again bool) {
	up, before := h.up, h.up.received
	defer up.freeHead()
	if req.expect && req.framed {
		if _, err := io.WriteString(h.client, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return false, nil, false
		}
	}
	_, writeErr := h.up.Write(h.in.b)
	if !reused {
		h.freeHead() // it is not sent again
	}
	s := startSender(h, req)
	resp, err := h.up.response(req.method, h.interim)
	if err != nil {
		s.stop()
		silent := up.received == before
		h.hangUp()
		r := cmp.Or(s.crash, spent(up.meter))
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
	r = cmp.Or(s.crash, spent(up.meter))
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

func (h *httpConn) interim(resp *http.Response) error {
	return writeHead(h.client, resp, "")
}

// refuse records a refusal, tells the client and ends the connection: after a
// request that was not carried out, where the next one begins is not certain.
func (h *httpConn) refuse(req *request, rec *account.Record, r *refusal.Refusal) (more bool) {
	req.drop()
	h.finish(rec, r)
	h.answer(req, r)
	return false
}

// answer sends the response of the gate itself, and closes.
func (h *httpConn) answer(req *request, r *refusal.Refusal) {
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
	if page := h.v.Page.Name; !page.IsZero() && !req.host.IsZero() && r.Reason != "" {
		body += fmt.Sprintf("more: http://%s/why?host=%s&port=%d\n", page, req.host, portHTTP)
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

// cut breaks a connection of h. v.mu is held.
func (h *httpConn) cut(c *net.TCPConn) {
	socket.ResetConn(c)
	if h.last != nil {
		h.last.cut()
	}
}

// A lastWords waits until a connection has lingered.
type lastWords struct {
	h      *httpConn
	linger linger
	done   chan struct{}
}

// sayLast sends msg and ends the connection.
func (h *httpConn) sayLast(msg []byte) {
	fd, err := socket.Dup(h.client)
	if err != nil {
		return // it is closed
	}
	l := &lastWords{h: h, done: make(chan struct{})}
	l.linger.words = append([]byte{}, msg...)
	h.v.mu.Lock()
	h.last = l
	h.v.loop.Post(func() {
		defer contain.To(l)
		l.linger.start(h.v.loop, fd, l)
	})
	if h.v.ended || h.over.Load() != nil {
		h.cut(h.client)
	}
	h.v.mu.Unlock()
	<-l.done
}

// cut ends it early, by the reset of which its connection is to have.
func (l *lastWords) cut() {
	l.h.v.loop.Post(l.linger.hangUp)
}

func (l *lastWords) lingered() { close(l.done) }

// Panicked is called by the loop.
func (l *lastWords) Panicked(err error) {
	l.h.Panicked(err)
	l.linger.hangUp()
}
