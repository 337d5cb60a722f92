package anthropic

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// An Error is an answer of the provider that is not a message.
type Error struct {
	Status  int    // of HTTP
	Type    string // such as overloaded_error
	Message string
	// RetryAfter is the value of the header of that name in seconds; 0 for none.
	RetryAfter int
	// Code is the detail that tells causes of the same type apart; "" for none.
	Code string
}

func (e *Error) Error() string { return e.Type + ": " + e.Message }

func invalid(message string) *Error {
	return &Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Message: message}
}

func (e *Error) write(w http.ResponseWriter, requestID string) {
	w.Header().Set("Content-Type", "application/json")
	if e.RetryAfter > 0 {
		w.Header().Set("retry-after", strconv.Itoa(e.RetryAfter))
	}
	w.WriteHeader(e.Status)
	type detail struct {
		Type    string            `json:"type"`
		Message string            `json:"message"`
		Details map[string]string `json:"details,omitempty"`
	}
	d := detail{Type: e.Type, Message: e.Message}
	if e.Code != "" {
		d.Details = map[string]string{"error_code": e.Code}
	}
	// A failed write means that the client has gone; there is nobody to tell.
	_ = json.NewEncoder(w).Encode(struct {
		Type      string `json:"type"`
		Error     detail `json:"error"`
		RequestID string `json:"request_id"`
	}{"error", d, requestID})
}
