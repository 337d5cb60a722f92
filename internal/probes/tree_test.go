package probes_test

import (
	"io/fs"
	"os"
	"strings"
	"testing"

	"sallyport/internal/probes"
)

// TestMarks holds the marks of all tests to the catalogue, and requires that each probe
// has a test that makes it, or a residual of the threat model that says why it has none.
func TestMarks(t *testing.T) {
	root := os.DirFS("../..")
	tests, err := probes.Find(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := probes.Check(probes.Catalogue, tests); err != nil {
		t.Error(err)
	}
	model, err := fs.ReadFile(root, "docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	_, residuals, ok := strings.Cut(string(model), "\n## "+probes.Residuals+"\n")
	if !ok {
		t.Fatalf("docs/threat-model.md has no section %q", probes.Residuals)
	}
	residuals, _, _ = strings.Cut(residuals, "\n## ")
	for _, g := range probes.Catalogue {
		for _, p := range g.Probes {
			if p.Residual != "" && !strings.Contains(residuals, "\n- **"+p.Residual+".**") {
				t.Errorf("docs/threat-model.md has no residual %q, which %s is said to be", p.Residual, p.ID)
			}
		}
	}
}
