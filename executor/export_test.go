package executor

import "strings"

// Routes are the routes as the OpenAPI document writes them, with " open" behind
// those that need no token.
func Routes() []string {
	var list []string
	for _, r := range (*Executor)(nil).routes() {
		route := r.method + " " + strings.ReplaceAll(r.path, "...}", "}")
		if r.open {
			route += " open"
		}
		list = append(list, route)
	}
	return list
}
