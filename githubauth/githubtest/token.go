package githubtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Asked is what a request for a token asks for.
type Asked struct {
	Repositories []string          `json:"repositories"`
	Permissions  map[string]string `json:"permissions"`
}

// Given is what GitHub answers to that, and what a test changes in it.
type Given struct {
	ExpiresAt    any               `json:"expires_at,omitempty"`
	Permissions  map[string]string `json:"permissions,omitempty"`
	Selection    string            `json:"repository_selection,omitempty"`
	Repositories []map[string]any  `json:"repositories,omitempty"`
	Token        string            `json:"token,omitempty"` // last: the first half of an answer has none
}

type token struct {
	value   string
	expires time.Time // zero: never
	revoked bool
}

// state of the token at a time: live, expired or revoked.
func (t *token) state(now time.Time) string {
	switch {
	case t.revoked:
		return "revoked"
	case !t.expires.IsZero() && !now.Before(t.expires):
		return "expired"
	}
	return "live"
}

func (s *Server) mint(w http.ResponseWriter, r *http.Request, id string) {
	var want Asked
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&want); err != nil {
		s.t.Errorf("a request for a token: %v", err)
	}
	if len(want.Repositories) == 0 || len(want.Permissions) == 0 {
		s.t.Errorf("a request for a token without a limit: %+v", want)
	}
	s.asked = append(s.asked, want)
	i := slices.IndexFunc(s.Accounts, func(a *Account) bool { return fmt.Sprint(a.ID) == id && !a.Suspended })
	if i < 0 {
		s.say(w, 404, "Not Found")
		return
	}
	answer, refusal := s.give(s.Accounts[i], want)
	if refusal != "" {
		s.say(w, 422, refusal)
		return
	}
	expires := answer.ExpiresAt.(time.Time)
	if s.Change != nil {
		s.Change(&answer)
	}
	s.tokens = append(s.tokens, &token{value: answer.Token, expires: expires})
	s.JSON(w, 201, answer)
}

// give makes a token of an account, or says why not.
func (s *Server) give(a *Account, want Asked) (answer Given, refusal string) {
	life := s.Life
	if life == 0 {
		life = time.Hour
	}
	answer = Given{Token: fmt.Sprintf("ghs_%s%032d", Mark, len(s.tokens)), ExpiresAt: s.Now().Add(life).Truncate(time.Second).UTC(),
		Permissions: maps.Clone(want.Permissions), Selection: "selected"}
	for name, level := range want.Permissions {
		if have := a.Permissions[name]; have != level && have != "write" && !s.Lax {
			return Given{}, "The permissions requested are not granted to this installation."
		}
	}
	for _, name := range want.Repositories {
		i := slices.IndexFunc(a.Repositories, func(have string) bool { return strings.EqualFold(have, name) })
		if i < 0 {
			return Given{}, "There is at least one repository that does not exist or is not accessible to the parent installation."
		}
		answer.Repositories = append(answer.Repositories, map[string]any{"name": a.Repositories[i], "full_name": a.Login + "/" + a.Repositories[i]})
	}
	return answer, ""
}

func (s *Server) revoke(w http.ResponseWriter, r *http.Request) {
	value, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	for _, t := range slices.Backward(s.tokens) {
		if t.value == value && t.state(s.Now()) == "live" {
			t.revoked = true
			w.WriteHeader(204)
			return
		}
	}
	s.say(w, 401, "Bad credentials")
}

// Add makes a token good, whether or not a request has made it.
func (s *Server) Add(value string) {
	s.Lock()
	defer s.Unlock()
	for _, t := range s.tokens {
		if t.value == value {
			t.revoked = false
			return
		}
	}
	s.tokens = append(s.tokens, &token{value: value})
}

// Tokens are all that there were, the oldest first.
func (s *Server) Tokens() (values []string) {
	s.Lock()
	defer s.Unlock()
	for _, t := range s.tokens {
		values = append(values, t.value)
	}
	return values
}

// Alive are the tokens that are good.
func (s *Server) Alive() (values []string) {
	s.Lock()
	defer s.Unlock()
	for _, t := range s.tokens {
		if t.state(s.Now()) == "live" {
			values = append(values, t.value)
		}
	}
	return values
}

// States are those of all tokens, the oldest first: live, expired or revoked.
func (s *Server) States() (states []string) {
	s.Lock()
	defer s.Unlock()
	for _, t := range s.tokens {
		states = append(states, t.state(s.Now()))
	}
	return states
}

// Asked are the requests for tokens so far.
func (s *Server) Asked() []Asked {
	s.Lock()
	defer s.Unlock()
	return slices.Clone(s.asked)
}

// Forget makes the Server forget what it was asked.
func (s *Server) Forget() {
	s.Lock()
	defer s.Unlock()
	s.asked = nil
}
