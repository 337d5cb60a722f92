package scope_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sallyport/githubauth/scope"
)

// TestBuiltin writes out what the four profiles may do: a change of the table has
// to be made here, too.
func TestBuiltin(t *testing.T) {
	type P = scope.Permissions
	want := []scope.Profile{
		{Name: "read", Permissions: P{"contents": "read", "issues": "read", "pull_requests": "read", "metadata": "read"}},
		{Name: "issues-write", Permissions: P{"contents": "read", "issues": "write", "pull_requests": "read", "metadata": "read"}},
		{Name: "review-write", Permissions: P{"contents": "read", "issues": "write", "pull_requests": "write", "metadata": "read"}},
		{Name: "repo-write", Permissions: P{"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}, AllowMcpAppAuth: true},
	}
	got := scope.Builtin()
	for i := range got {
		if got[i].Description == "" {
			t.Errorf("%s has no description", got[i].Name)
		}
		got[i].Description = ""
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("built in are %+v", got)
	}
	profiles := scope.DefaultProfiles()
	if names := profiles.Names(); !slices.Equal(names, []string{"issues-write", "read", "repo-write", "review-write"}) {
		t.Errorf("the names are %v", names)
	}
	if ceiling := profiles.Ceiling(); !maps.Equal(ceiling, want[3].Permissions) {
		t.Errorf("the ceiling is %v", ceiling)
	}
	if findings := profiles.Lint(); len(findings) != 0 {
		t.Errorf("findings about what is built in: %v", findings)
	}
	if off := profiles.SwitchedOff(); len(off) != 0 {
		t.Errorf("switched off: %v", off)
	}
}

func TestParse(t *testing.T) {
	profiles, err := scope.Load("testdata/profiles.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := scope.Profile{
		Name: "docs-write", Description: "pushes to the documentation's repositories",
		Permissions: scope.Permissions{"contents": "write", "metadata": "read", "pages": "write"},
	}
	if got, ok := profiles.Get("docs-write"); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("docs-write is %+v, %t", got, ok)
	}
	// The file's ceiling has no pull_requests: write.
	if names := profiles.Names(); !slices.Equal(names, []string{"ci-look", "docs-write", "issues-write", "read"}) {
		t.Errorf("the names are %v", names)
	}
	for _, off := range []string{"repo-write", "review-write"} {
		_, err := profiles.NewGrant(off, "acme", []string{"shop"})
		if err == nil || !strings.Contains(err.Error(), "is switched off: pull_requests: write is wider than the ceiling's read") {
			t.Errorf("%s: %v", off, err)
		}
	}
	if _, err := profiles.NewGrant("docs-write", "acme", []string{"shop"}); err != nil {
		t.Error(err)
	}
	plain, err := scope.Parse("x.yaml", []byte("version: 1\n"))
	if err != nil || !maps.Equal(plain.Ceiling(), scope.DefaultProfiles().Ceiling()) || len(plain.Names()) != 4 {
		t.Errorf("an empty file: %v, %v", plain, err)
	}
}

// TestFaults compares all faults of a file with what is written beside it.
func TestFaults(t *testing.T) {
	files, err := filepath.Glob("testdata/faults/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(path, "yaml") + "want")
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		profiles, err := scope.Parse(name, text)
		if err == nil || profiles != nil {
			t.Errorf("%s is right", name)
			continue
		}
		if got := err.Error() + "\n"; got != string(want) {
			t.Errorf("%s has the faults\n%s\nwant\n%s", name, got, want)
		}
	}
}

func TestFaultsOfBytes(t *testing.T) {
	for _, test := range []struct{ name, text, wrong string }{
		{"empty", "", "the file is empty"},
		{"a comment", "# nothing\n", "the file is empty"},
		{"a list", "- 1\n", "is not a mapping"},
		{"two documents", "version: 1\n---\nversion: 1\n", "a second document"},
		{"a directive", "%YAML 1.2\n---\nversion: 1\n", "directive"},
		{"no UTF-8", "version: 1\n# \xff\n", "not UTF-8"},
		{"a hidden character", "version: 1\n# \u202e\n", "U+202E"},
		{"deep", "version: " + strings.Repeat("[", 100), "levels deep"},
		{"long", "version: 1\n#" + strings.Repeat("x", 300<<10), "longer than"},
		{"no YAML", "version: [\n", "YAML syntax"},
	} {
		_, err := scope.Parse("p.yaml", []byte(test.text))
		faults, ok := errors.AsType[scope.FileErrors](err)
		if !ok || len(faults) != 1 || !strings.Contains(err.Error(), test.wrong) || !strings.HasPrefix(err.Error(), "p.yaml:") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	if _, err := scope.Load("testdata/absent.yaml"); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "testdata/absent.yaml: ") {
		t.Error(err)
	}
	if _, err := scope.Load("testdata"); err == nil {
		t.Error("a directory is a file of profiles")
	}
	var many strings.Builder
	many.WriteString("version: 1\nprofiles:\n")
	for i := range 300 {
		many.WriteString("  p" + strings.Repeat("x", i%50) + string(rune('a'+i/50)) + ": {}\n")
	}
	_, err := scope.Parse("p.yaml", []byte(many.String()))
	if faults, _ := errors.AsType[scope.FileErrors](err); len(faults) != 101 || !strings.Contains(faults[100].Problem, "more faults") {
		t.Errorf("%d faults", len(faults))
	}
}

func TestLint(t *testing.T) {
	text, err := os.ReadFile("testdata/lint.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/lint.want")
	if err != nil {
		t.Fatal(err)
	}
	profiles, err := scope.Parse("lint.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, f := range slices.Concat(profiles.Lint(), profiles.SwitchedOff()) {
		got.WriteString(f.String() + "\n")
	}
	if got.String() != string(want) {
		t.Errorf("findings\n%s\nwant\n%s", got.String(), want)
	}
}
