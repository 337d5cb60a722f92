package github

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// maxBody bounds a request to the API, in bytes.
const maxBody = 16 << 20

// Requests that an hour allows, with a token and without.
const (
	rateToken  = 5000
	rateNobody = 60
)

// Who may call a route.
const (
	anybody  = iota // what is public; with a token more
	asApp           // the App, by its JSON web token
	asToken         // an installation token
	signedIn        // any token: the route is for people, whom there are none
)

// A route is one operation of the REST API.
type route struct {
	pattern string // for http.ServeMux; {owner} and {repo} are looked up, {number} too
	who     int
	need    need // of the repository
	serve   func(*call) (status int, body any, err error)
}

// A call is one request to a route; the server's lock is held.
type call struct {
	*Server
	ctx    context.Context
	w      http.ResponseWriter
	r      *http.Request
	body   []byte
	caller caller
	repo   *repository
	issue  *issue
}

// routes is the whole API.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	for _, group := range [][]route{appRoutes, repoRoutes, gitRoutes, issueRoutes, pullRoutes} {
		for _, rt := range group {
			mux.HandleFunc(rt.pattern, func(w http.ResponseWriter, r *http.Request) { s.serveRoute(w, r, rt) })
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.serveRoute(w, r, route{serve: func(*call) (int, any, error) { return 0, nil, notFound() }})
	})
	return mux
}

func (s *Server) serveRoute(w http.ResponseWriter, r *http.Request, rt route) {
	if r.UserAgent() == "" {
		http.Error(w, "Request forbidden by administrative rules. Please make sure your request has a User-Agent header",
			http.StatusForbidden)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		writeError(w, &apiError{status: 400, message: "Problems reading the request"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &call{Server: s, ctx: r.Context(), w: w, r: r, body: body}
	status, answer, err := c.serve(rt)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, status, answer)
}

// serve judges the caller, then the repository, then what is in it.
func (c *call) serve(rt route) (int, any, error) {
	h := c.w.Header()
	h.Set("X-Github-Media-Type", "github.v3; format=json")
	h.Set("X-Github-Api-Version-Selected", "2022-11-28")
	if rt.who == asApp {
		if err := c.requireApp(c.r); err != nil {
			return 0, nil, err
		}
		return rt.serve(c)
	}
	var err error
	if c.caller, err = c.identify(c.r); err != nil {
		return 0, nil, err
	}
	c.limits("core")
	switch {
	case c.caller.token == nil && rt.who != anybody:
		return 0, nil, &apiError{status: 401, message: "Requires authentication"}
	case rt.who == signedIn:
		return 0, nil, forbidden()
	}
	if owner := c.r.PathValue("owner"); owner != "" {
		if len(rt.need) > 0 {
			h.Set("X-Accepted-Github-Permissions", rt.need.String())
		}
		c.repo = c.world.repo(owner, c.r.PathValue("repo"))
		if err := c.caller.check(c.repo, rt.need); err != nil {
			return 0, nil, err
		}
	}
	if n := c.r.PathValue("number"); n != "" {
		number, _ := strconv.Atoi(n) // what is no number is no issue
		if c.issue = c.repo.issue(number); c.issue == nil {
			return 0, nil, notFound()
		}
	}
	return rt.serve(c)
}

// limits tells the rate limit, which nobody reaches here.
func (c *call) limits(resource string) {
	limit, used := rateNobody, 1
	if t := c.caller.token; t != nil {
		limit, used = rateToken, t.used
	}
	h := c.w.Header()
	h.Set("X-Ratelimit-Limit", strconv.Itoa(limit))
	h.Set("X-Ratelimit-Remaining", strconv.Itoa(max(limit-used, 0)))
	h.Set("X-Ratelimit-Used", strconv.Itoa(used))
	h.Set("X-Ratelimit-Reset", strconv.FormatInt(c.now().Truncate(time.Hour).Add(time.Hour).Unix(), 10))
	h.Set("X-Ratelimit-Resource", resource)
}

// read decodes the body; an empty one leaves into as it is.
func (c *call) read(into any) error {
	if len(c.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.body, into); err != nil {
		return &apiError{status: 400, message: "Problems parsing JSON"}
	}
	return nil
}

// author is who did what the caller does.
func (s *Server) author(caller) *account { return s.world.account(Slug + "[bot]") }

// page cuts the page that the caller asked for out of a list, and says where the next is.
func page[T any](c *call, all []T) []T {
	number := func(name string, otherwise int) int {
		if n, err := strconv.Atoi(c.r.FormValue(name)); err == nil && n > 0 {
			return n
		}
		return otherwise
	}
	size, at := min(number("per_page", 30), 100), number("page", 1)
	from := min((at-1)*size, len(all))
	to := min(from+size, len(all))
	if to < len(all) {
		next := url.URL{Scheme: "https", Host: APIHost, Path: c.r.URL.Path}
		q := c.r.URL.Query()
		q.Set("page", strconv.Itoa(at+1))
		next.RawQuery = q.Encode()
		c.w.Header().Set("Link", fmt.Sprintf("<%s>; rel=\"next\"", &next))
	}
	return all[from:to]
}

// each renders a list.
func each[T any](list []T, view func(T) any) []any {
	out := make([]any, 0, len(list))
	for _, one := range list {
		out = append(out, view(one))
	}
	return out
}

// newest returns a list turned around.
func newest[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}
