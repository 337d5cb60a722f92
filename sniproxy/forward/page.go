package forward

import (
	"fmt"
	"net/http"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/refusal"
)

// A Page is a host that the gate itself serves, on port 80 and under every
// policy. Nothing is resolved or dialled for it.
type Page struct {
	// Name is the host's; the zero Name is none, and there is no page.
	Name firewall.Name
	// Answer gives the response to GET target, which is a path with perhaps a
	// query; accept is the request's Accept field, "" if it has none. It is called
	// from several goroutines and must not block.
	Answer func(target, accept string) (status int, contentType string, body []byte)
}

// serves reports whether a request is for the page.
func (p Page) serves(host firewall.Name) bool { return !p.Name.IsZero() && host == p.Name }

// servePage answers a request for the page and closes: what else the client
// sent, such as a body, is of no interest.
func (h *conn) servePage(req *request, rec *account.Record) (more bool) {
	rec.Verdict, rec.Reason = firewall.Allow, firewall.ReasonPolicyPage
	if req.method != http.MethodGet && req.method != http.MethodHead {
		return h.refuse(req, rec, &refusal.Refusal{Reason: firewall.ReasonBadRequest, Detail: "the page can only be read", Status: http.StatusMethodNotAllowed})
	}
	accept := ""
	if values := valuesOf(req.fields, "accept"); len(values) > 0 {
		accept = values[0]
	}
	status, kind, body := h.v.page.Answer(req.target, accept)
	req.drop()
	h.finish(rec, nil)
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n", status, http.StatusText(status), kind, len(body))
	if req.method == http.MethodHead {
		body = nil
	}
	h.sayLast(append([]byte(head), body...))
	return false
}
