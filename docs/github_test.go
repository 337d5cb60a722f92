package docs_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sallyport/executor/plan"
	"sallyport/firewall/allowlist"
	"sallyport/githubauth/scope"
)

// TestGitHubIsDocumented holds docs/github.md against the built-in profiles and
// the reasons of a failed mint.
func TestGitHubIsDocumented(t *testing.T) {
	doc := read(t, "docs/github.md")
	profiles := section(t, doc, "Profiles")
	columns := cells(strings.SplitN(profiles[strings.Index(profiles, "| profile"):], "\n", 2)[0])
	rows := table(t, profiles)
	var names []string
	for _, p := range scope.Builtin() {
		names = append(names, p.Name)
		row := rows[p.Name]
		if len(row) != len(columns) {
			t.Errorf("docs/github.md: the profile %s has the row %v", p.Name, row)
			continue
		}
		said := scope.Permissions{}
		for i, level := range row[1 : len(row)-2] {
			said[columns[i+1]] = level
		}
		key := map[bool]string{true: "yes", false: "no"}[p.AllowMcpAppAuth]
		if !maps.Equal(said, p.Permissions) || row[len(row)-2] != key || row[len(row)-1] != p.Description {
			t.Errorf("docs/github.md: the row of %s is %v, but it is %+v", p.Name, row, p)
		}
	}
	same(t, "docs/github.md, profiles", rows, names)
	same(t, "docs/github.md, reasons", table(t, section(t, doc, "When no token comes")), constants(t, "githubauth/rest", "Reason"))
	same(t, "docs/github.md, keys", table(t, section(t, doc, "Your own profiles")),
		[]string{"version", "ceiling", "profiles", "description", "permissions", "allowMcpAppAuth"})
}

// TestGitHubExamples reads what docs/github.md shows.
func TestGitHubExamples(t *testing.T) {
	doc := read(t, "docs/github.md")
	profiles, err := scope.Parse("docs/github.md", []byte(only(t, doc, "yaml profiles")))
	if err != nil {
		t.Fatal(err)
	}
	if names := profiles.Names(); len(names) != 6 {
		t.Errorf("the example has the profiles %v", names)
	}
	if _, err := allowlist.Parse(strings.NewReader(only(t, doc, "yaml allowlist")), "docs/github.md"); err != nil {
		t.Error(err)
	}
	request, problem := plan.Decode([]byte(only(t, doc, "json request")))
	if problem != nil {
		t.Fatal(problem)
	}
	a := request.Opts.GithubAccess
	if _, err := scope.DefaultProfiles().NewGrant(a.Profile, a.Owner, []string{a.Repo}); err != nil {
		t.Error(err)
	}
}

// cells are those of one row of a table.
func cells(row string) []string {
	all := strings.Split(strings.Trim(strings.TrimSpace(row), "|"), "|")
	for i := range all {
		all[i] = strings.TrimSpace(all[i])
	}
	return slices.Clip(all)
}
