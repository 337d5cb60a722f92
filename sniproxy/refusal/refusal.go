// Package refusal says why a connection or request goes no further: in the record, in
// the log, and in the little that its client is told.
package refusal

import (
	"errors"
	"io"
	"net"
	"net/http"

	"sallyport/firewall"
	"sallyport/internal/contain"
)

// A Refusal is why a connection or request goes no further. A nil one refuses nothing.
type Refusal struct {
	Reason firewall.Reason
	Detail string         // for a person; holds no unescaped input
	Alert  Alert          // on 443; 0 sends none
	Status int            // on 80; 0 sends none
	Fault  *contain.Panic // what was contained, for the log; nil where nothing was
}

// An Alert is the description of a fatal TLS alert (RFC 8446, section 6).
type Alert byte

// The alerts that the gate sends. What TLS clients print for them is the only
// explanation that a refused program gets: "access denied", "unrecognized name".
const (
	DecodeError      Alert = 50
	AccessDenied     Alert = 49
	InternalError    Alert = 80
	MissingExtension Alert = 109
	UnrecognizedName Alert = 112
)

// Record is the alert as a TLS record of its own. The version is the one that
// clients of every version accept before a ServerHello.
func (a Alert) Record() []byte {
	const recordAlert, fatal = 21, 2
	return []byte{recordAlert, 3, 3, 0, 2, fatal, byte(a)}
}

// Fault is the refusal of what has panicked, or nil if err is no panic. Whoever
// records it logs it.
func Fault(err error) *Refusal {
	var p *contain.Panic
	if !errors.As(err, &p) {
		return nil
	}
	return &Refusal{Reason: firewall.ReasonFault, Detail: p.Error(), Alert: InternalError, Status: http.StatusBadGateway, Fault: p}
}

// OverBudget is the refusal of what the run's budget has no room for.
func OverBudget(detail string) *Refusal {
	return &Refusal{Reason: firewall.ReasonBudget, Detail: detail, Alert: AccessDenied, Status: http.StatusForbidden}
}

// Unread says why reading a client's hello or head came to no end. what names the
// thing that was read, bad the reason where it was the client that ended.
func Unread(err error, got int, what string, bad firewall.Reason) *Refusal {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout() && got == 0:
		return &Refusal{Reason: firewall.ReasonLimit, Detail: "no " + what + " in time"}
	case errors.As(err, &timeout) && timeout.Timeout():
		return &Refusal{Reason: firewall.ReasonLimit, Detail: "the " + what + " did not end in time", Status: http.StatusRequestTimeout}
	case errors.Is(err, io.EOF) && got == 0:
		return &Refusal{Reason: bad, Detail: "closed before a " + what}
	default:
		return &Refusal{Reason: bad, Detail: "closed inside the " + what, Status: http.StatusBadRequest}
	}
}
