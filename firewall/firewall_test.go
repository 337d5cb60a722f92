package firewall

import (
	"go/build"
	"slices"
	"strings"
	"testing"
)

// TestImports keeps the package at the bottom of the module: what it imports of ours
// imports nothing of ours.
func TestImports(t *testing.T) {
	for dir, may := range map[string][]string{
		".": {"sallyport/firewall/budget", "sallyport/firewall/hosts"}, "budget": nil, "hosts": nil,
	} {
		pkg, err := build.ImportDir(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range pkg.Imports {
			if !slices.Contains(may, path) && (path == "sallyport" || strings.HasPrefix(path, "sallyport/")) {
				t.Errorf("%s imports %s", pkg.Name, path)
			}
			if path == "net" || path == "net/http" || path == "os/exec" {
				t.Errorf("%s imports %s: it resolves and dials nothing", pkg.Name, path)
			}
		}
	}
}
