package githubauth_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"

	"sallyport/githubauth/githubtest"
	"sallyport/githubauth/scope"
)

// FuzzProfiles: whatever a file of profiles says and whatever GitHub answers, no
// request and no token is beyond the ceiling, which the test reads on its own, and
// no token is other than its profile.
func FuzzProfiles(f *testing.F) {
	files, err := filepath.Glob("scope/testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	more, err := filepath.Glob("scope/testdata/faults/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(files, more...) {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, []byte(`{"contents": "write", "metadata": "read", "pages": "write"}`))
	}
	b := newBench(f, nil)
	b.github.Lax = true
	f.Fuzz(func(t *testing.T, text, answer []byte) {
		profiles, err := scope.Parse("fuzz.yaml", text)
		if (err == nil) != (profiles != nil) {
			t.Fatalf("%v and %v", profiles, err)
		}
		if err != nil {
			for _, name := range append(profiles.Names(), "read", "repo-write") {
				if _, err := profiles.NewGrant(name, "Acme", []string{"shop"}); err == nil {
					t.Errorf("a file with faults grants %s", name)
				}
			}
			return
		}
		profiles.Lint()
		ceiling := ceilingOf(t, text)
		for _, name := range append(profiles.Names(), "read", "issues-write", "review-write", "repo-write") {
			g, err := profiles.NewGrant(name, "Acme", []string{"shop"})
			if err != nil {
				continue
			}
			within(t, name, g.Profile.Permissions, ceiling)
			mintWithin(t, b, g, answer, ceiling)
		}
	})
}

// mintWithin mints g from a GitHub that gives what answer says.
func mintWithin(t *testing.T, b *bench, g scope.Grant, answer []byte, ceiling map[string]string) (minted bool) {
	var gives map[string]string
	odd := json.Unmarshal(answer, &gives) == nil
	b.github.Forget()
	b.github.Lock()
	b.github.Change = func(a *githubtest.Given) {
		if odd {
			a.Permissions = gives
		}
	}
	b.github.Unlock()
	token, err := b.app.Mint(t.Context(), g)
	for _, a := range b.github.Asked() {
		within(t, "a request", a.Permissions, ceiling)
		if !slices.Equal(a.Repositories, []string{"shop"}) {
			t.Errorf("a request for %v", a.Repositories)
		}
	}
	if err != nil && (token.Value() != "" || len(b.github.Alive()) > 0) {
		t.Errorf("%v, and yet a token", err)
	}
	if err == nil {
		within(t, "a token", token.Permissions, ceiling)
		if !maps.Equal(token.Permissions, g.Profile.Permissions) {
			t.Errorf("a token with %v for %v", token.Permissions, g.Profile.Permissions)
		}
		if err := b.app.Revoke(t.Context(), token.Value()); err != nil {
			t.Error(err)
		}
	}
	return err == nil
}

// ceilingOf reads the ceiling in another way than the package does.
func ceilingOf(t *testing.T, text []byte) map[string]string {
	var file struct{ Ceiling map[string]string }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatalf("a file without faults: %v\n%s", err, text)
	}
	if file.Ceiling == nil {
		return map[string]string{"contents": "write", "issues": "write", "pull_requests": "write", "metadata": "read"}
	}
	if file.Ceiling["metadata"] == "" {
		file.Ceiling["metadata"] = "read" // which GitHub always gives
	}
	return file.Ceiling
}

func within(t *testing.T, what string, permissions, ceiling map[string]string) {
	t.Helper()
	if len(permissions) == 0 || slices.Contains(slices.Collect(maps.Values(permissions)), "") || !isWithin(permissions, ceiling) {
		t.Errorf("%s has %v; the ceiling is %v", what, permissions, ceiling)
	}
}

// TestNoProfileIsBeyondTheCeiling does what FuzzProfiles does with files that are
// well-formed, which a fuzzer finds few of: a file is right exactly where all its
// profiles are within its ceiling.
func TestNoProfileIsBeyondTheCeiling(t *testing.T) {
	b := newBench(t, nil)
	b.github.Lax = true
	random := rand.New(rand.NewPCG(4, 711))
	names := []string{"contents", "issues", "pull_requests", "metadata", "pages", "organization_projects", "workflows"}
	pick := func() map[string]string {
		picked := make(map[string]string)
		for range 1 + random.IntN(4) {
			name := names[random.IntN(len(names))]
			level := []string{"read", "write"}[random.IntN(2)]
			switch {
			case name == "workflows":
				level = "write"
			case name == "organization_projects" && random.IntN(2) == 0:
				level = "admin"
			}
			picked[name] = level
		}
		return picked
	}
	var right, minted int
	for range 400 {
		ceiling, profiles := pick(), map[string]any{}
		if random.IntN(2) == 0 { // a wide one, or few files would be right
			maps.Copy(ceiling, map[string]string{"contents": "write", "issues": "write", "pull_requests": "write", "pages": "write"})
		}
		fits := true
		for i := range 1 + random.IntN(3) {
			permissions := pick()
			profiles["p"+string(rune('a'+i))] = map[string]any{"permissions": permissions}
			fits = fits && isWithin(permissions, ceiling)
		}
		text, err := yaml.Marshal(map[string]any{"version": 1, "ceiling": ceiling, "profiles": profiles})
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := scope.Parse("random.yaml", text)
		if (err == nil) != fits {
			t.Fatalf("%v\n%s", err, text)
		}
		if err != nil {
			continue
		}
		right++
		answer, err := json.Marshal(pick())
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(2) == 0 {
			answer = nil // what was asked for
		}
		for _, name := range parsed.Names() {
			g, err := parsed.NewGrant(name, "Acme", []string{"shop"})
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if mintWithin(t, b, g, answer, ceilingOf(t, text)) {
				minted++
			}
		}
	}
	if right < 40 || minted < 40 {
		t.Errorf("only %d files were right, and %d tokens were minted", right, minted)
	}
}

// isWithin is a second opinion on Permissions.Within.
func isWithin(permissions, ceiling map[string]string) bool {
	order := []string{"", "read", "write", "admin"}
	for name, level := range permissions {
		most := ceiling[name]
		if name == "metadata" && most == "" {
			most = "read"
		}
		if at := slices.Index(order, level); at < 0 || at > slices.Index(order, most) {
			return false
		}
	}
	return true
}
