package sniproxy

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"sallyport/firewall"
)

// What one cell sends, or has an outside server answer, must not end the gate of
// all the others: a panic of the code that handles it ends what it was about, which
// is refused. Not contained are panics of what all cells share, the run of a loop
// and of its clerk: who would serve their tunnels is not known then, and a gate that
// ends is started anew.

// A panicError is a panic that was contained.
type panicError struct {
	value any
	stack []byte
}

// Error is for records and clients, which have no use for the rest.
func (e *panicError) Error() string { return "a fault of the gate: its log says more" }

// words are for the log.
func (e *panicError) words() string { return fmt.Sprintf("%v\n%s", e.value, e.stack) }

// newPanicError is called where p was recovered.
func newPanicError(p any) *panicError { return &panicError{p, debug.Stack()} }

// contained is for defer: it makes a panic an error.
func contained(err *error) {
	if p := recover(); p != nil {
		*err = newPanicError(p)
	}
}

// contain is for defer: it tells h of a panic.
func contain(h interface{ panicked(err error) }) {
	if p := recover(); p != nil {
		h.panicked(newPanicError(p))
	}
}

// fault is the refusal of what has panicked, or nil if err is no panic. Whoever
// records it logs it.
func fault(err error) *refusal {
	var p *panicError
	if !errors.As(err, &p) {
		return nil
	}
	return &refusal{reason: firewall.ReasonFault, detail: p.Error(), alert: alertInternalError, status: http.StatusBadGateway, fault: p}
}
