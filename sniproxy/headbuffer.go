package sniproxy

import (
	"sync"

	"sallyport/firewall"
	"sallyport/sniproxy/refusal"
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
func (h *headBuffer) grow(limit int) *refusal.Refusal {
	size := min(2*cap(h.b), limit)
	if size <= cap(h.b) {
		return &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: "too long", Alert: refusal.DecodeError, Status: 431}
	}
	if !h.server.reserve(size) {
		return &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: "too many long hellos or heads at once",
			Alert: refusal.InternalError, Status: 503}
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

// A bound on the memory that hellos and heads make the gate hold: each connection
// has headBytes of its own, and what the connections of a cell need beyond that they
// share.
const (
	headBytes   = 4 << 10
	sharedBytes = 8 << 20
)

// reserve takes n bytes of the cell's shared memory for a hello or head, until it is
// sent on or refused; the caller gives them back with release.
func (s *Server) reserve(n int) bool {
	if s.held.Add(int64(n)) > sharedBytes {
		s.held.Add(-int64(n))
		return false
	}
	return true
}

func (s *Server) release(n int) { s.held.Add(-int64(n)) }
