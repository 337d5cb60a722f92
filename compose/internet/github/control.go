package github

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// keptEntries bounds the request log.
const keptEntries = 20000

// An entry is one request. It has no token, only the token's hash.
type entry struct {
	Seq       int       `json:"seq"` // from 1, without gaps
	Time      time.Time `json:"time"`
	Host      string    `json:"host"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	Operation string    `json:"operation,omitempty"` // GraphQL: "mutation createIssue"
	Auth      string    `json:"auth"`                // none, app, token or unknown
	Token     string    `json:"token,omitempty"`     // see hashOf
	Status    int       `json:"status"`
	Agent     string    `json:"agent"`
}

// A requestLog keeps the last requests.
type requestLog struct {
	mu   sync.Mutex // guards what follows
	all  []entry
	last int
}

func (l *requestLog) add(e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	e.Seq = l.last
	if len(l.all) == keptEntries {
		l.all = append(l.all[:0], l.all[keptEntries/2:]...)
	}
	l.all = append(l.all, *e)
}

func (l *requestLog) after(seq int, token string) []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := []entry{}
	for _, e := range l.all {
		if e.Seq > seq && (token == "" || e.Token == token) {
			found = append(found, e)
		}
	}
	return found
}

// A span is a duration that JSON has as text, such as "5m".
type span struct{ time.Duration }

// MarshalText and UnmarshalText are for encoding/json.
func (s span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *span) UnmarshalText(text []byte) (err error) {
	s.Duration, err = time.ParseDuration(string(text))
	return err
}

// faults are what goes wrong, by a test's wish. The zero value: nothing.
type faults struct {
	// Only limits delay, status, headers, body and truncate: "mint", "revoke", "app"
	// (everything under /app, and the look-ups of installations), "api", "git" or, if empty, everything.
	Only string `json:"only,omitempty"`
	// Times is how many requests they hit; 0 means until they are taken back.
	Times    int               `json:"times,omitempty"`
	Delay    span              `json:"delay,omitzero"`
	Status   int               `json:"status,omitempty"` // answered instead of the real one
	Headers  map[string]string `json:"headers,omitempty"`
	Body     string            `json:"body,omitempty"`     // of that answer
	Truncate bool              `json:"truncate,omitempty"` // the real answer breaks off in its middle

	// Scope makes mints differ from what was asked: "wider-permissions", "wider-repositories",
	// "narrower-permissions", "narrower-repositories", or "unsaid" (the answer does not tell).
	Scope string `json:"scope,omitempty"`
	// Skew is how far the server's clock is ahead.
	Skew span `json:"skew,omitzero"`
	// TokenLife replaces the hour that a token lives.
	TokenLife span `json:"tokenLife,omitzero"`
}

func (f faults) life() time.Duration { return cmp.Or(f.TokenLife.Duration, tokenLife) }

// scope is what a mint gets instead of what it asked for.
func (f faults) scope(in *installation, p permissions, chosen []*repository) (permissions, []*repository) {
	switch f.Scope {
	case "wider-permissions":
		return maps.Clone(in.permissions), chosen
	case "wider-repositories":
		return p, nil
	case "narrower-permissions":
		return permissions{"metadata": "read"}, chosen
	case "narrower-repositories":
		return p, slices.Clone(chosen[:max(len(chosen)-1, 0)])
	}
	return p, chosen
}

// hits says whether the request is among those that go wrong, and counts it.
func (f *faults) hits(r *http.Request, api bool) bool {
	revoke := r.Method == http.MethodDelete && r.URL.Path == "/installation/token"
	mint := strings.HasSuffix(r.URL.Path, "/access_tokens")
	app := strings.HasPrefix(r.URL.Path, "/app") || strings.HasSuffix(r.URL.Path, "/installation")
	hit := map[string]bool{
		"": true, "mint": mint, "revoke": revoke, "app": app, "api": api, "git": !api,
	}[f.Only]
	if !hit || f.Times < 0 {
		return false
	}
	if f.Times == 1 {
		f.Times = -1 // used up
	} else if f.Times > 1 {
		f.Times--
	}
	return true
}

// fail answers in place of the real server, where a fault says so.
func (s *Server) fail(w *recorder, r *http.Request, api bool) bool {
	s.mu.Lock()
	hit := s.faults.hits(r, api)
	f := s.faults
	s.mu.Unlock()
	if !hit {
		return false
	}
	if f.Delay.Duration > 0 {
		select {
		case <-time.After(f.Delay.Duration):
		case <-r.Context().Done():
			panic(http.ErrAbortHandler) // no answer; net/http would make it a 200
		}
	}
	if f.Truncate {
		w.ResponseWriter = &truncated{ResponseWriter: w.ResponseWriter}
		return false
	}
	if f.Status == 0 {
		return false
	}
	for name, value := range f.Headers {
		w.Header().Set(name, value)
	}
	if f.Body != "" {
		w.WriteHeader(f.Status)
		_, _ = io.WriteString(w, f.Body)
	} else {
		writeError(w, &apiError{status: f.Status, message: "a fault that the test asked for"})
	}
	return true
}

// truncated promises more than it sends: the connection ends in mid-answer.
type truncated struct{ http.ResponseWriter }

func (t *truncated) WriteHeader(status int) {
	t.Header().Set("Content-Length", "100000")
	t.ResponseWriter.WriteHeader(status)
}

func (t *truncated) Write(p []byte) (int, error) {
	n, err := t.ResponseWriter.Write(p[:len(p)/2])
	return n + len(p) - len(p)/2, err
}

// Control is for tests, to be served where no sandbox reaches it:
//
//	GET    /github/app                      {id, clientId, slug}
//	GET    /github/tokens                   every token that was minted, by hash
//	GET    /github/requests?after=&token=   what was asked, by which token
//	GET    /github/faults                   what goes wrong, see faults; PUT replaces, DELETE ends
func (s *Server) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /github/app", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, map[string]any{"id": AppID, "clientId": ClientID, "slug": Slug})
	})
	mux.HandleFunc("GET /github/tokens", func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, s.minted())
	})
	mux.HandleFunc("GET /github/requests", func(w http.ResponseWriter, r *http.Request) {
		after, err := strconv.Atoi(cmp.Or(r.FormValue("after"), "0"))
		if err != nil {
			http.Error(w, "after must be a number", http.StatusBadRequest)
			return
		}
		writeJSON(w, 200, s.log.after(after, r.FormValue("token")))
	})
	mux.HandleFunc("GET /github/faults", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		writeJSON(w, 200, s.faults)
	})
	mux.HandleFunc("PUT /github/faults", func(w http.ResponseWriter, r *http.Request) {
		var f faults
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil {
			http.Error(w, fmt.Sprintf("the faults: %v", err), http.StatusBadRequest)
			return
		}
		s.setFaults(f)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /github/faults", func(w http.ResponseWriter, r *http.Request) {
		s.setFaults(faults{})
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func (s *Server) setFaults(f faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// minted lists all tokens, the oldest first.
func (s *Server) minted() []token {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []token{}
	for _, t := range s.tokens {
		one := *t
		one.State = t.state(s.now())
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b token) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Hash, b.Hash))
	})
	return list
}
