package entrypoint

import "golang.org/x/sys/unix"

// signals are those a job can be sent, by the names on the wire.
var signals = map[string]unix.Signal{
	"TERM": unix.SIGTERM,
	"INT":  unix.SIGINT,
	"KILL": unix.SIGKILL,
}

func validSignal(name string) bool {
	_, ok := signals[name]
	return ok
}
