package sallyport_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"sallyport/internal/probes"
)

var update = flag.Bool("update", false, "write docs/security-tests.md anew from the tests' marks")

// TestSecurityTests holds docs/security-tests.md to the marks of all tests, and
// wants that each probe of the catalogue has a test that makes it, or a residual
// that says why it has none.
func TestSecurityTests(t *testing.T) {
	const doc = "docs/security-tests.md"
	tests, err := probes.Find(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	if err := probes.Check(probes.Catalogue, tests); err != nil {
		t.Error(err)
	}
	residuals := section(t, read(t, "docs/threat-model.md"), probes.Residuals)
	for _, g := range probes.Catalogue {
		for _, p := range g.Probes {
			if p.Residual != "" && !strings.Contains(residuals, "\n- **"+p.Residual+".**") {
				t.Errorf("docs/threat-model.md has no residual %q, which %s is said to be", p.Residual, p.ID)
			}
		}
	}
	var want bytes.Buffer
	if err := probes.Write(&want, probes.Catalogue, tests); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(doc, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if read(t, doc) != want.String() {
		t.Errorf("%s is not what the tests' marks say: go test . -run TestSecurityTests -update", doc)
	}
}
