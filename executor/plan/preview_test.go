package plan_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
)

// TestPreview: what needs no executor is judged without one as it is with one.
func TestPreview(t *testing.T) {
	hub := func(change func(*api.GithubAccess)) func(*api.Request) {
		return func(r *api.Request) { *r = gitHubRequest(change) }
	}
	for name, change := range map[string]func(*api.Request){
		"right":          func(*api.Request) {},
		"no prompt":      func(r *api.Request) { r.Prompt = "" },
		"services":       func(r *api.Request) { r.Config.Services = json.RawMessage(`{}`) },
		"policy":         func(r *api.Request) { r.Config.Egress = "wide" },
		"two policies":   func(r *api.Request) { r.Config.Egress, r.Config.UnrestrictedEgress = "strict", true },
		"artifacts":      func(r *api.Request) { r.Config.Artifacts = []string{"../x"} },
		"GitHub":         hub(func(*api.GithubAccess) {}),
		"profile":        hub(func(a *api.GithubAccess) { a.Profile = "admin" }),
		"branch":         hub(func(a *api.GithubAccess) { a.PrePopulateBranch = "a..b" }),
		"key":            hub(func(a *api.GithubAccess) { a.Profile, a.AllowMcpAppAuth = "repo-write", true }),
		"key by profile": hub(func(a *api.GithubAccess) { a.AllowMcpAppAuth = true }),
	} {
		for _, allowKey := range []bool{false, true} {
			s := gitHubService(allowKey)
			req := request(nil)
			change(&req)
			full, want := s.Judge(caller.Operator(), req, policies)
			short, got := plan.Preview(req, policies, s.GitHub)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %v, but with an executor %v", name, got, want)
			}
			if got == nil && (short.Policy != full.Policy || !reflect.DeepEqual(short.GitHub, full.GitHub)) {
				t.Errorf("%s: %+v, but with an executor %+v", name, short, full)
			}
		}
	}
	if _, problem := plan.Preview(gitHubRequest(func(*api.GithubAccess) {}), policies, nil); problem == nil || problem.Code != api.CodeCapability {
		t.Errorf("without an App: %v", problem)
	}
}
