package github

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// An apiError is an answer that refuses.
type apiError struct {
	status  int
	message string
	kind    string // GraphQL's type of it
	details []any  // the member errors of a failed validation
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s", e.status, e.message) }

func notFound() error { return &apiError{status: 404, message: "Not Found", kind: "NOT_FOUND"} }

func badCredentials() error {
	return &apiError{status: 401, message: "Bad credentials", kind: "FORBIDDEN"}
}

func forbidden() error {
	return &apiError{status: 403, message: "Resource not accessible by integration", kind: "FORBIDDEN"}
}

func unprocessable(format string, args ...any) error {
	return &apiError{status: 422, message: fmt.Sprintf(format, args...), kind: "UNPROCESSABLE"}
}

// missing is a failed validation: the field of the resource was not given.
func missing(resource, field string) error {
	return invalid(resource, field, "missing_field", "")
}

// invalid is a failed validation of one field. With a message the code is custom.
func invalid(resource, field, code, message string) error {
	detail := map[string]any{"resource": resource, "code": code, "field": field}
	e := &apiError{status: 422, message: "Validation Failed", kind: "UNPROCESSABLE"}
	if message != "" {
		detail["code"], detail["message"] = "custom", message
	}
	e.details = []any{detail}
	return e
}

// asAPIError is the answer to an error: what is not one of ours is a fault here.
func asAPIError(err error) *apiError {
	var e *apiError
	if errors.As(err, &e) {
		return e
	}
	return &apiError{status: 500, message: "Server Error: " + err.Error(), kind: "INTERNAL"}
}

func writeError(w http.ResponseWriter, err error) {
	e := asAPIError(err)
	body := map[string]any{
		"message":           e.message,
		"documentation_url": "https://docs.github.com/rest",
		"status":            strconv.Itoa(e.status),
	}
	if e.details != nil {
		body["errors"] = e.details
	}
	writeJSON(w, e.status, body)
}

// writeJSON answers; nil is no body.
func writeJSON(w http.ResponseWriter, status int, v any) {
	if text, ok := v.(plain); ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, string(text)) // a client that has gone
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	if v != nil {
		_ = json.NewEncoder(w).Encode(v) // a client that has gone
	}
}
