package docker

import "sallyport/executor/backend"

// Disconnect cuts the connections to a sandbox as the death of this process would.
func Disconnect(s backend.Sandbox) { s.(*sandbox).detach() }
