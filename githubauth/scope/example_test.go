package scope_test

import (
	"fmt"

	"sallyport/githubauth/scope"
)

// A file of profiles is judged as a whole; a run names a profile and repositories.
func ExampleProfiles_NewGrant() {
	profiles, err := scope.Parse("profiles.yaml", []byte(`
version: 1
ceiling: {contents: write, issues: read, pull_requests: read}
profiles:
  docs-write: {permissions: {contents: write}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	grant, err := profiles.NewGrant("docs-write", "acme", []string{"site"})
	fmt.Println(grant.Profile.Permissions, err)
	_, err = profiles.NewGrant("issues-write", "acme", []string{"site"})
	fmt.Println(err)
	_, err = profiles.NewGrant("read", "acme", nil)
	fmt.Println(err)
	// Output:
	// contents: write, metadata: read <nil>
	// profile "issues-write" is switched off: issues: write is wider than the ceiling's read
	// no repository is named, which GitHub would take for all of the installation
}
