package github

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
)

// ql asks GraphQL and returns the errors' type and message, or "".
func ql(t *testing.T, c *http.Client, token, query string, variables object) (answer, string) {
	t.Helper()
	a := ask(t, c, "POST", "/graphql", token, object{"query": query, "variables": variables})
	errs, _ := a.body["errors"].([]any)
	if len(errs) == 0 {
		return a, ""
	}
	first, _ := errs[0].(object)
	kind, _ := first["type"].(string)
	message, _ := first["message"].(string)
	return a, strings.TrimSpace(kind + " " + message)
}

// TestMutations asks for each mutation as each profile: what gh would not try, too.
func TestMutations(t *testing.T) {
	s, c := start(t)
	app, lib := s.world.repo("acme", "app"), s.world.repo("acme", "lib")
	g := app.git
	contents := func(path string) func() object {
		return func() object {
			return object{"branch": object{"repositoryNameWithOwner": "acme/app", "branchName": "main"}, "message": object{"headline": "h"},
				"expectedHeadOid": g.branch(t.Context(), mainBranch), "fileChanges": object{"additions": []any{
					object{"path": path, "contents": base64.StdEncoding.EncodeToString([]byte("x\n"))}}}}
		}
	}
	fixed := func(in object) func() object { return func() object { return in } }
	id, pr := nodeID("R", app.id), app.issue(2).nodeID()
	for _, m := range []struct {
		name, inputType, least string // the narrowest profile that may
		input                  func() object
	}{
		{"createIssue", "CreateIssueInput", "issues-write", fixed(object{"repositoryId": id, "title": "x"})},
		{"updateIssue", "UpdateIssueInput", "issues-write", fixed(object{"id": app.issue(1).nodeID(), "title": "x"})},
		{"closeIssue", "CloseIssueInput", "issues-write", fixed(object{"issueId": app.issue(1).nodeID()})},
		{"addComment", "AddCommentInput", "issues-write", fixed(object{"subjectId": app.issue(1).nodeID(), "body": "x"})},
		{"updatePullRequest", "UpdatePullRequestInput", "review-write", fixed(object{"pullRequestId": pr, "title": "x"})},
		{"addPullRequestReview", "AddPullRequestReviewInput", "review-write", fixed(object{"pullRequestId": pr, "event": "APPROVE"})},
		{"convertPullRequestToDraft", "ConvertPullRequestToDraftInput", "review-write", fixed(object{"pullRequestId": pr})},
		{"markPullRequestReadyForReview", "MarkPullRequestReadyForReviewInput", "review-write", fixed(object{"pullRequestId": pr})},
		{"createCommitOnBranch", "CreateCommitOnBranchInput", "repo-write", contents("file.txt")},
		{"updateRepository", "UpdateRepositoryInput", "everything", fixed(object{"repositoryId": id, "description": "x"})},
		{"createIssue", "CreateIssueInput", "", fixed(object{"repositoryId": nodeID("R", lib.id), "title": "x"})},
		{"addComment", "AddCommentInput", "", fixed(object{"subjectId": lib.issue(1).nodeID(), "body": "x"})},
	} {
		allowed := false
		for _, profile := range []string{"read", "issues-write", "review-write", "repo-write", "everything"} {
			allowed = allowed || profile == m.least
			token := newToken(t, s, c, profile, "app")
			query := "mutation($input: " + m.inputType + "!) { " + m.name + "(input: $input) { clientMutationId } }"
			a, failure := ql(t, c, token, query, object{"input": m.input()})
			want := "FORBIDDEN " + inaccessible
			if allowed {
				want = ""
			} else if m.least == "" {
				want = "NOT_FOUND "
			}
			if a.status != 200 || failure != want && (want != "NOT_FOUND " || !strings.HasPrefix(failure, want)) {
				t.Errorf("%s, %s: %d %s, want %q", profile, m.name, a.status, a.text, want)
			}
		}
	}
	token := newToken(t, s, c, "repo-write", "app")
	_, failure := ql(t, c, token, "mutation($input: CreateCommitOnBranchInput!) { createCommitOnBranch(input: $input) { clientMutationId } }",
		object{"input": contents(".github/workflows/x.yml")()})
	if !strings.Contains(failure, "without `workflows` permission") {
		t.Errorf("a workflow by GraphQL: %q", failure)
	}
}

// TestQueries covers what gh makes no use of.
func TestQueries(t *testing.T) {
	s, c := start(t)
	token := newToken(t, s, c, "read", "app")
	blind := mintAt(t, s, c, "acme", object{"repositories": []string{"app"}, "permissions": permissions{"issues": "read"}}).body["token"].(string)
	for _, q := range []struct {
		token, query string
		variables    object
		want         string // in the answer
	}{
		{token, `{viewer{login}}`, nil, `"sallyport-demo[bot]"`},
		{token, `{repository(owner:"acme",name:"app"){a:name ...f}} fragment f on Repository{owner{__typename login}}`, nil, `{"a":"app","owner":{"__typename":"Organization","login":"acme"}}`},
		{token, `query($x:Boolean!){repository(owner:"acme",name:"app"){name @skip(if:$x) id @include(if:$x)}}`, object{"x": false}, `{"repository":{"name":"app"}}`},
		{token, `{repository(owner:"acme",name:"app"){object(expression:"main:README.md"){...on Blob{text}}}}`, nil, `# app\n`},
		{token, `{repository(owner:"acme",name:"app"){refs(refPrefix:"refs/heads/",first:1){totalCount nodes{name} pageInfo{hasNextPage endCursor}}}}`, nil, `"endCursor":"1","hasNextPage":true},"totalCount":2`},
		{token, `{repository(owner:"acme",name:"app"){refs(refPrefix:"refs/heads/",first:1,after:"1"){nodes{name target{oid}}}}}`, nil, `"name":"main"`},
		{token, `{repository(owner:"acme",name:"app"){nonsense}}`, nil, `Field 'nonsense' doesn't exist on type 'Repository'`},
		{token, `{repository(owner:"acme",name:"lib"){name}}`, nil, `"type":"NOT_FOUND"`},
		{token, `{repository(owner:"other",name:"open"){name issues(first:1){totalCount}}}`, nil, `"totalCount":1`},
		{token, `{__type(name:"PullRequest"){fields(includeDeprecated:true){name}}}`, nil, `"isInMergeQueue"`},
		{blind, `{repository(owner:"acme",name:"app"){issues(first:1){totalCount} pullRequests(first:1){totalCount}}}`, nil, `"path":["repository","pullRequests"]`},
		{blind, `{repository(owner:"acme",name:"app"){object(expression:"main:README.md"){oid}}}`, nil, `"type":"FORBIDDEN"`},
		{"", `{viewer{login}}`, nil, `This endpoint requires you to be authenticated.`},
		{"ghs_x", `{viewer{login}}`, nil, `Bad credentials`},
	} {
		if a, _ := ql(t, c, q.token, q.query, q.variables); !strings.Contains(a.text, q.want) {
			t.Errorf("%s: %d %s, want %s", q.query, a.status, a.text, q.want)
		}
	}
}
