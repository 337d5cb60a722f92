// Package contain makes a panic an error of what it was about. What one cell sends,
// or has an outside server answer, must not end the gate of all the others. Not to be
// contained are panics of what all cells share: who would serve them is not known
// then, and a gate that ends is started anew.
//
// All of these are for defer, at the place where it is known what has to end:
//
//	defer contain.To(connection)
package contain

import (
	"fmt"
	"runtime/debug"
)

// A Panic is a panic that was contained.
type Panic struct {
	Value any
	Stack []byte
}

// Error is for records and clients, which have no use for the rest.
func (*Panic) Error() string { return "a fault of the gate: its log says more" }

// Words are for the log.
func (p *Panic) Words() string { return fmt.Sprintf("%v\n%s", p.Value, p.Stack) }

// A Holder has what a panic was about. It must let go of it.
type Holder interface{ Panicked(err error) }

// To tells h of a panic, as a *Panic.
func To(h Holder) {
	if p := recover(); p != nil {
		h.Panicked(New(p))
	}
}

// Error puts a panic into err.
func Error(err *error) {
	if p := recover(); p != nil {
		*err = New(p)
	}
}

// With calls then for a panic.
func With(then func(p *Panic)) {
	if p := recover(); p != nil {
		then(New(p))
	}
}

// New is for whoever has recovered p itself, where it has.
func New(p any) *Panic { return &Panic{p, debug.Stack()} }
