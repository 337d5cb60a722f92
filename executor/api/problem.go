package api

import "net/http"

// Problem is the body of every answer that is not a success
// (application/problem+json, RFC 9457).
type Problem struct {
	Type      string         `json:"type"` // about:blank
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail"`
	Code      Code           `json:"code"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details,omitempty"`
}

func (p *Problem) Error() string { return string(p.Code) + ": " + p.Detail }

// NewProblem is the problem of a request that is answered with the status.
func NewProblem(status int, code Code, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail}
}

// Unavailable is a problem that passes.
func Unavailable(code Code, detail string) *Problem {
	p := NewProblem(http.StatusServiceUnavailable, code, detail)
	p.Retryable = true
	return p
}
