package plan_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
	"sallyport/githubauth/scope"
)

func gitHubRequest(change func(*api.GithubAccess)) api.Request {
	req := request(nil)
	req.Opts.GithubAccess = &api.GithubAccess{Owner: "acme", Repo: "app", Profile: "read"}
	change(req.Opts.GithubAccess)
	return req
}

func gitHubService(allowKey bool) *plan.Service {
	s := service()
	s.GitHub = &plan.GitHubService{Profiles: scope.DefaultProfiles(), AllowKey: allowKey}
	return s
}

func TestJudgeGitHub(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*api.GithubAccess)
		want   plan.GitHub
		repos  []string
	}{
		{"one repository", func(*api.GithubAccess) {}, plan.GitHub{Repo: "app"}, []string{"app"}},
		{"more of them", func(a *api.GithubAccess) { a.Repositories = []string{"lib"} }, plan.GitHub{Repo: "app"}, []string{"app", "lib"}},
		{"named twice", func(a *api.GithubAccess) { a.Repositories = []string{"lib", "App"} }, plan.GitHub{Repo: "app"}, []string{"lib", "App"}},
		{"the list alone", func(a *api.GithubAccess) { a.Repo, a.Repositories = "", []string{"lib", "app"} }, plan.GitHub{}, []string{"lib", "app"}},
		{"a base alone", func(a *api.GithubAccess) { a.BaseBranch, a.Shallow = "main", true }, plan.GitHub{Repo: "app"}, []string{"app"}},
		{"a branch", func(a *api.GithubAccess) { a.PrePopulateBranch, a.BaseBranch = "fix/x-1", "main" },
			plan.GitHub{Repo: "app", Branch: "fix/x-1", Base: "main"}, []string{"app"}},
		{"a branch of the only one", func(a *api.GithubAccess) {
			a.Repo, a.Repositories, a.PrePopulateBranch, a.Shallow = "", []string{"lib"}, "main", true
		}, plan.GitHub{Repo: "lib", Branch: "main", Shallow: true}, []string{"lib"}},
		{"the key", func(a *api.GithubAccess) { a.Profile, a.AllowMcpAppAuth = "repo-write", true }, plan.GitHub{Repo: "app", Key: true}, []string{"app"}},
	} {
		p, problem := gitHubService(true).Judge(caller.Operator(), gitHubRequest(tt.change), policies)
		if problem != nil {
			t.Errorf("%s: %v", tt.name, problem)
			continue
		}
		got := *p.GitHub
		if got.Repo != tt.want.Repo || got.Branch != tt.want.Branch || got.Base != tt.want.Base || got.Shallow != tt.want.Shallow || got.Key != tt.want.Key ||
			got.Grant.Owner != "acme" || !slices.Equal(got.Grant.Repositories, tt.repos) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	p, problem := gitHubService(false).Judge(caller.Operator(), request(nil), policies)
	if problem != nil || p.GitHub != nil {
		t.Errorf("without a wish: %+v, %v", p, problem)
	}
}

func TestJudgeGitHubRefuses(t *testing.T) {
	for _, tt := range []struct {
		name     string
		allowKey bool
		change   func(*api.GithubAccess)
		code     api.Code
		field    string
		want     string
	}{
		{"no owner", true, func(a *api.GithubAccess) { a.Owner = "" }, api.CodeInvalidRequest, "owner", "required"},
		{"no profile", true, func(a *api.GithubAccess) { a.Profile = "" }, api.CodeInvalidRequest, "profile", "required"},
		{"unknown profile", true, func(a *api.GithubAccess) { a.Profile = "admin" }, api.CodeInvalidRequest, "profile", "repo-write"},
		{"no repository", true, func(a *api.GithubAccess) { a.Repo = "" }, api.CodeInvalidRequest, "", "no repository"},
		{"with an owner", true, func(a *api.GithubAccess) { a.Repo = "acme/app" }, api.CodeInvalidRequest, "", "without the owner"},
		{"odd owner", true, func(a *api.GithubAccess) { a.Owner = "../x" }, api.CodeInvalidRequest, "", "not the name"},
		{"twice", true, func(a *api.GithubAccess) { a.Repositories = []string{"lib", "LIB"} }, api.CodeInvalidRequest, "", "twice"},
		{"key by profile", true, func(a *api.GithubAccess) { a.AllowMcpAppAuth = true }, api.CodeCapability, "allowMcpAppAuth", "does not allow"},
		{"key by service", false, func(a *api.GithubAccess) { a.Profile, a.AllowMcpAppAuth = "repo-write", true }, api.CodeCapability, "allowMcpAppAuth", "to nobody"},
		{"run id", true, func(a *api.GithubAccess) { a.RunID = "a\nb" }, api.CodeInvalidRequest, "runId", "printable"},
		{"which repository", true, func(a *api.GithubAccess) {
			a.Repo, a.Repositories, a.PrePopulateBranch = "", []string{"app", "lib"}, "main"
		}, api.CodeInvalidRequest, "repo", "which of the repositories"},
		{"branch", true, func(a *api.GithubAccess) { a.PrePopulateBranch = "--upload-pack=x" }, api.CodeInvalidRequest, "prePopulateBranch", "no name that git has"},
		{"base", true, func(a *api.GithubAccess) { a.BaseBranch = "a..b" }, api.CodeInvalidRequest, "baseBranch", "no name that git has"},
	} {
		_, problem := gitHubService(tt.allowKey).Judge(caller.Operator(), gitHubRequest(tt.change), policies)
		field := strings.TrimSuffix("opts.githubAccess."+tt.field, ".")
		if problem == nil || problem.Status != 422 || problem.Code != tt.code || problem.Details["field"] != field || !strings.Contains(problem.Detail, tt.want) {
			t.Errorf("%s: %+v", tt.name, problem)
		}
	}
	_, problem := service().Judge(caller.Operator(), gitHubRequest(func(*api.GithubAccess) {}), policies)
	if problem == nil || problem.Code != api.CodeCapability || problem.Details["requestedCapability"] != "githubAccess" {
		t.Errorf("without an App: %+v", problem)
	}
}

// TestBranchNames holds our reading to git-check-ref-format(1).
func TestBranchNames(t *testing.T) {
	for name, want := range map[string]bool{
		"main": true, "feature/a.b-c_d": true, "ünïcode": true, "a@b": true, "x{y}": true, strings.Repeat("a", 255): true,
		"-x": false, "a..b": false, "a b": false, "a~b": false, "a^b": false, "a:b": false, "a?b": false, "a*b": false, "a[b": false,
		`a\b`: false, "a@{b": false, "@": false, "HEAD": false, "/a": false, "a/": false, "a//b": false, ".a": false, "a/.b": false,
		"a.lock": false, "a.lock/b": false, "a.": false, "a\x7fb": false, "a\nb": false, "a\x00b": false, strings.Repeat("a", 256): false,
	} {
		_, problem := gitHubService(false).Judge(caller.Operator(), gitHubRequest(func(a *api.GithubAccess) { a.PrePopulateBranch = name }), policies)
		if (problem == nil) != want {
			t.Errorf("%q: %v", name, problem)
		}
	}
}

func TestDecodeGitHub(t *testing.T) {
	for body, want := range map[string]string{
		`{"prompt":"p","opts":{"githubAccess":{"owner":"o","repo":"r","profile":"read"}}}`:       "",
		`{"prompt":"p","opts":{"githubAccess":null}}`:                                            "",
		`{"prompt":"p","opts":{"githubAccess":{"owner":"o","permissions":{}}}}`:                  `unknown field "opts.githubAccess.permissions"`,
		`{"prompt":"p","opts":{"githubAccess":{"Owner":"o"}}}`:                                   `it is spelt "owner"`,
		`{"prompt":"p","opts":{"githubAccess":{"owner":"o","owner":"p"}}}`:                       "twice",
		`{"prompt":"p","opts":{"githubAccess":"read"}}`:                                          "must be an object",
		`{"prompt":"p","opts":{"githubAccess":{"repositories":"lib"}}}`:                          "must be an array of strings",
		`{"prompt":"p","opts":{"githubAccess":{"owner":"o","repo":"r","profile":"read"},"x":1}}`: `unknown field "opts.x"`,
	} {
		_, problem := plan.Decode([]byte(body))
		if want == "" && problem != nil || want != "" && (problem == nil || !strings.Contains(problem.Detail, want)) {
			t.Errorf("%s: %v, want %q", body, problem, want)
		}
	}
}
