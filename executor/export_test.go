package executor

import (
	"strings"

	"sallyport/executor/caller"
)

// Routes are the routes as the OpenAPI document writes them, with " open" behind
// those that need no token.
func Routes() []string {
	var list []string
	for _, r := range (*Executor)(nil).routes() {
		route := r.method + " " + strings.ReplaceAll(r.path, "...}", "}")
		if r.needs == 0 {
			route += " open"
		}
		list = append(list, route)
	}
	return list
}

// Know has a token stand for a caller. No call may be under way.
func (e *Executor) Know(token string, c caller.Caller) error { return e.callers.Add(token, c) }
