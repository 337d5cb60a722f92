package forward

import (
	"strconv"
	"strings"

	"sallyport/sniproxy/admission"
)

// maxAdded is about how much longer than a head the one that is written anew can be:
// a blank in each field, and the end of the connection.
const maxAdded = 2 * maxFields

// rewrite puts the head that goes upstream in the place of the client's, and drops
// the latter: all that the request holds from then on is in the buffer, which has
// reserved it.
func (req *request) rewrite(in *admission.HeadBuffer) {
	b := in.B[:0]
	if most := len(in.B) + maxAdded; most > cap(b) {
		b = make([]byte, 0, most)
	}
	in.B = req.appendHead(b)
	req.drop()
}

// drop lets go of the client's head. The request knows how it is to be forwarded and
// answered, and no longer what it asks for.
func (req *request) drop() {
	req.method, req.target, req.fields = strings.Clone(req.method), "", nil
}

// appendHead writes the head that goes upstream. A connection that carries a
// body is told to carry nothing after it, so that a server which disagrees about
// the body's end finds no second request behind it.
func (req *request) appendHead(b []byte) []byte {
	b = append(b, req.method+" "+req.target+" HTTP/1.1\r\nHost: "+req.host.String()+"\r\n"...)
	for _, f := range req.fields {
		b = append(b, f.name+": "+f.value+"\r\n"...)
	}
	switch {
	case req.length == chunked:
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	case req.framed:
		b = strconv.AppendInt(append(b, "Content-Length: "...), req.length, 10)
		b = append(b, "\r\n"...)
	}
	if !req.repeatable() {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}
