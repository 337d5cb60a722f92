package executor

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"sallyport/executor/api"
)

const (
	jsonType    = "application/json"
	ndjsonType  = "application/x-ndjson"
	sseType     = "text/event-stream"
	problemType = "application/problem+json"
)

// writeTimeout bounds one write to a caller.
const writeTimeout = 30 * time.Second

// retryAfter is what callers are told to wait before they try again, where no problem
// says better.
const retryAfter = 5 * time.Second

func notFound(detail string) *api.Problem {
	return api.NewProblem(http.StatusNotFound, api.CodeNotFound, detail)
}

func badRequest(detail string) *api.Problem {
	return api.NewProblem(http.StatusBadRequest, api.CodeInvalidRequest, detail)
}

func writeProblem(w http.ResponseWriter, p *api.Problem) {
	switch p.Status {
	case http.StatusServiceUnavailable:
		tellWait(w, retryAfter)
	case http.StatusTooManyRequests:
		if ms, ok := p.Details["retryAfterMs"].(int64); ok {
			tellWait(w, time.Duration(ms)*time.Millisecond)
		}
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="sallyport"`)
	}
	write(w, p.Status, problemType, p)
}

// tellWait says when to try again, in whole seconds and never too early.
func tellWait(w http.ResponseWriter, d time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(int((d+time.Second-1)/time.Second)))
}

func writeJSON(w http.ResponseWriter, status int, v any) { write(w, status, jsonType, v) }

// write writes one JSON document. That it could not be sent concerns nobody but
// the caller, who is gone.
func write(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "the answer could not be encoded", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)+1))
	extend(w)
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}

// extend gives the next write its time. A writer without deadlines, such as a
// test's recorder, needs none.
func extend(w http.ResponseWriter) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}
