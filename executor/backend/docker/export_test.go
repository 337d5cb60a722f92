package docker

import "sallyport/executor/backend"

// Disconnect cuts the connections to a sandbox as the death of this process would.
func Disconnect(s *backend.Sandbox) { s.Life.(*sandbox).detach() }

// TCPLimit is where the buffers of a sandbox's TCP connections end, in bytes.
func (e *Engine) TCPLimit(l backend.Limits) int64 {
	if e.limitsTCP {
		return tcpLimit(l)
	}
	return l.MemoryBytes
}
