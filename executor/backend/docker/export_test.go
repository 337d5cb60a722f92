package docker

import (
	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/engine"
)

// Disconnect cuts the connections to a sandbox as the death of this process would.
func Disconnect(s *backend.Sandbox) { s.Life.(*engine.Container).Detach() }
