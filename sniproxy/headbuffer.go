package sniproxy

import (
	"sync"

	"sallyport/firewall"
)

// headPool holds head buffers with headBytes each, copyBuffers those through
// which bodies are copied.
var (
	headPool    = sync.Pool{New: func() any { return &headBuffer{own: make([]byte, headBytes)} }}
	copyBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
)

// A headBuffer holds what a client has sent before a verdict, a ClientHello or a
// request head, and then what of it goes to the server. It starts small and grows on
// account of the cell.
type headBuffer struct {
	server *Server // nil once it is freed
	own    []byte
	extra  int // bytes reserved
	b      []byte
}

func newHeadBuffer(s *Server) *headBuffer {
	h := headPool.Get().(*headBuffer)
	h.server, h.b = s, h.own[:0]
	return h
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

// free gives the memory back; neither b nor the buffer must be used afterwards.
func (h *headBuffer) free() {
	if h.server == nil {
		return
	}
	h.server.release(h.extra)
	h.server, h.b, h.extra = nil, nil, 0
	headPool.Put(h)
}
