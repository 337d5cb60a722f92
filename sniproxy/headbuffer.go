package sniproxy

import (
	"sync"

	"sallyport/firewall"
)

// headPool holds the first headBytes of every head buffer, copyBuffers those
// through which bodies are copied.
var (
	headPool    = sync.Pool{New: func() any { b := make([]byte, headBytes); return &b }}
	copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
)

// A headBuffer holds what a client has sent before a verdict: a ClientHello or
// a request head. It starts small and grows on account of the cell.
type headBuffer struct {
	server *Server
	pooled *[]byte
	extra  int // bytes reserved
	b      []byte
}

func newHeadBuffer(s *Server) *headBuffer {
	p := headPool.Get().(*[]byte)
	return &headBuffer{server: s, pooled: p, b: (*p)[:0]}
}

// grow makes room for more bytes, to a capacity of at most limit.
func (h *headBuffer) grow(limit int) *refusal {
	size := min(2*cap(h.b), limit)
	if size <= cap(h.b) {
		return &refusal{reason: firewall.ReasonLimit, detail: "too long", alert: alertDecodeError, status: 431}
	}
	if !h.server.reserve(size) {
		return &refusal{reason: firewall.ReasonLimit, detail: "too many long hellos or heads at once",
			alert: alertInternalError, status: 503}
	}
	h.server.release(h.extra)
	h.extra = size
	h.b = append(make([]byte, 0, size), h.b...)
	return nil
}

// free gives the memory back; b must not be used afterwards.
func (h *headBuffer) free() {
	if h.pooled == nil {
		return
	}
	h.server.release(h.extra)
	headPool.Put(h.pooled)
	h.pooled, h.b, h.extra = nil, nil, 0
}
