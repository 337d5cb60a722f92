package admission

import (
	"sync"

	"sallyport/firewall"
	"sallyport/sniproxy/refusal"
)

// headPool holds head buffers with HeadBytes each, copyBuffers those through
// which bodies are copied.
var headPool = sync.Pool{New: func() any { return &HeadBuffer{own: make([]byte, HeadBytes)} }}

// A HeadBuffer holds what a client has sent before a verdict, a ClientHello or a
// request head, and then what of it goes to the server. It starts small and grows on
// account of the cell.
type HeadBuffer struct {
	cell  *Cell // nil once it is freed
	own   []byte
	extra int // bytes reserved
	B     []byte
}

func NewHeadBuffer(c *Cell) *HeadBuffer {
	h := headPool.Get().(*HeadBuffer)
	h.cell, h.B = c, h.own[:0]
	return h
}

// Grow makes room for more bytes, to a capacity of at most limit.
func (h *HeadBuffer) Grow(limit int) *refusal.Refusal {
	size := min(2*cap(h.B), limit)
	if size <= cap(h.B) {
		return &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: "too long", Alert: refusal.DecodeError, Status: 431}
	}
	if !h.cell.Reserve(size) {
		return &refusal.Refusal{Reason: firewall.ReasonLimit, Detail: "too many long hellos or heads at once",
			Alert: refusal.InternalError, Status: 503}
	}
	h.cell.Release(h.extra)
	h.extra = size
	h.B = append(make([]byte, 0, size), h.B...)
	return nil
}

// Free gives the memory back; neither B nor the buffer must be used afterwards.
func (h *HeadBuffer) Free() {
	if h.cell == nil {
		return
	}
	h.cell.Release(h.extra)
	h.cell, h.B, h.extra = nil, nil, 0
	headPool.Put(h)
}

// A bound on the memory that hellos and heads make the gate hold: each connection
// has HeadBytes of its own, and what the connections of a cell need beyond that they
// share.
const (
	HeadBytes   = 4 << 10
	SharedBytes = 8 << 20
)

// Reserve takes n bytes of the cell's shared memory for a hello or head, until it is
// sent on or refused; the caller gives them back with Release.
func (c *Cell) Reserve(n int) bool {
	if c.heads.Add(int64(n)) > SharedBytes {
		c.heads.Add(-int64(n))
		return false
	}
	return true
}

// Release gives n bytes back.
func (c *Cell) Release(n int) { c.heads.Add(-int64(n)) }

// Reserved is how many bytes of the cell's the buffer takes.
func (h *HeadBuffer) Reserved() int { return h.extra }
