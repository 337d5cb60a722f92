// Package anthropic plays a model provider: an http.Handler that speaks the
// Anthropic Messages API, streaming included, with a scripted model behind it.
// It is part of the demo's internet and of the tests, so that a real agent with
// its unmodified SDK can be run to the end without an account.
//
// It checks a request the way the provider does (key, version, model, the pairing of tool uses
// and results) and answers errors in the provider's words and status codes.
// It keeps no state: what the model says next follows from the conversation that
// the request carries, so a restart or a second replica changes nothing.
//
//	h := &anthropic.Server{Keys: []string{key}, Models: anthropic.Models, Script: anthropic.Demo(site, refused)}
//	http.ListenAndServeTLS(addr, cert, keyFile, h)
//
// It does not price, rate-limit, cache, run server tools or read images.
package anthropic

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Models are models that the provider offers and that agents know by these
// names.
var Models = []string{
	"claude-haiku-4-5", "claude-haiku-5-5",
	"claude-opus-4-6", "claude-opus-5", "claude-opus-5-5",
	"claude-sonnet-4-5", "claude-sonnet-4-6", "claude-sonnet-5", "claude-sonnet-5-5",
}

// MaxBody is the provider's cap on a request's body, in bytes.
const MaxBody = 32 << 20

// A Server answers requests. The zero value knows no key and refuses everything.
type Server struct {
	// Keys are the accepted values of x-api-key.
	Keys []string
	// Models are the model names that exist here.
	Models []string
	// Script is what the model says where the prompt names no script (see Select).
	// If nil, Plain.
	Script Script
	// Pace is the pause between two pieces of a streamed text.
	Pace time.Duration
	// PingEvery is the interval of pings in a quiet stream; 0 means 5 s.
	PingEvery time.Duration
	// Log gets one record a request. If nil, nothing is logged.
	Log *slog.Logger
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := "req_" + rand.Text()
	w.Header().Set("request-id", id)
	if err := s.serve(w, r); err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Status: http.StatusInternalServerError, Type: "api_error", Message: "Internal server error"}
		}
		e.write(w, id)
		s.log(r, id, e.Status, e.Type+": "+e.Message)
		return
	}
	s.log(r, id, http.StatusOK, "")
}

func (s *Server) log(r *http.Request, id string, status int, failure string) {
	if s.Log == nil {
		return
	}
	s.Log.Info("request", "id", id, "method", r.Method, "path", r.URL.Path, "status", status,
		"agent", r.UserAgent(), "failure", failure)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	if err := s.authenticate(r); err != nil {
		return err
	}
	switch path := r.URL.Path; {
	case path == "/v1/messages":
		return s.messages(w, r)
	case path == "/v1/models":
		return s.models(w, r)
	case strings.HasPrefix(path, "/v1/models/"):
		return s.model(w, r, strings.TrimPrefix(path, "/v1/models/"))
	}
	return &Error{Status: http.StatusNotFound, Type: "not_found_error", Message: "Not found"}
}

func (s *Server) authenticate(r *http.Request) error {
	key := r.Header.Get("x-api-key")
	if key == "" {
		return &Error{Status: http.StatusUnauthorized, Type: "authentication_error", Message: "x-api-key header is required"}
	}
	for _, k := range s.Keys {
		if k != "" && subtle.ConstantTimeCompare([]byte(k), []byte(key)) == 1 {
			if r.Header.Get("anthropic-version") == "" {
				return invalid("anthropic-version: header is required")
			}
			return nil
		}
	}
	return &Error{Status: http.StatusUnauthorized, Type: "authentication_error", Message: "invalid x-api-key"}
}

func (s *Server) messages(w http.ResponseWriter, r *http.Request) error {
	if err := allow(r, http.MethodPost); err != nil {
		return err
	}
	if ct, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(ct), "application/json") {
		return invalid("Content-Type: must be application/json")
	}
	req, err := ReadRequest(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		return err
	}
	if !slices.Contains(s.Models, req.Model) {
		return &Error{Status: http.StatusNotFound, Type: "not_found_error", Message: "model: " + req.Model}
	}
	if len(req.Thread) > 0 && string(req.Thread) != "null" {
		// Nothing is kept here. With this code an SDK sends the whole conversation instead.
		return &Error{Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "thread_unsupported_request",
			Message: "thread: message threads are not supported for this request"}
	}
	conv := req.conversation()
	script := Select(conv.Prompt)
	if script == nil {
		script = s.Script
	}
	if script == nil {
		script = Plain
	}
	turn := script(conv)
	if turn.Error != nil {
		return turn.Error
	}
	a := s.answer(req, turn)
	if req.Stream {
		return a.stream(w, r)
	}
	return a.whole(w, r)
}

type modelInfo struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	DisplayName string `json:"display_name"`
	CreatedAt   string `json:"created_at"`
}

func info(id string) modelInfo {
	return modelInfo{Type: "model", ID: id, DisplayName: id, CreatedAt: "2026-01-01T00:00:00Z"}
}

func (s *Server) models(w http.ResponseWriter, r *http.Request) error {
	if err := allow(r, http.MethodGet); err != nil {
		return err
	}
	page := struct {
		Data    []modelInfo `json:"data"`
		HasMore bool        `json:"has_more"`
		FirstID string      `json:"first_id"`
		LastID  string      `json:"last_id"`
	}{Data: []modelInfo{}}
	for _, id := range s.Models {
		page.Data = append(page.Data, info(id))
	}
	if n := len(s.Models); n > 0 {
		page.FirstID, page.LastID = s.Models[0], s.Models[n-1]
	}
	return writeJSON(w, page)
}

func (s *Server) model(w http.ResponseWriter, r *http.Request, id string) error {
	if err := allow(r, http.MethodGet); err != nil {
		return err
	}
	if !slices.Contains(s.Models, id) {
		return &Error{Status: http.StatusNotFound, Type: "not_found_error", Message: "model: " + id}
	}
	return writeJSON(w, info(id))
}

func allow(r *http.Request, method string) error {
	if r.Method == method {
		return nil
	}
	return &Error{Status: http.StatusMethodNotAllowed, Type: "invalid_request_error", Message: "Method Not Allowed"}
}

func writeJSON(w http.ResponseWriter, v any) error {
	w.Header().Set("Content-Type", "application/json")
	// A failed write means that the client has gone; there is nobody to tell.
	_ = json.NewEncoder(w).Encode(v)
	return nil
}
