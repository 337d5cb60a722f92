package budget

import (
	"os"
	"strings"
	"testing"
)

// What Format writes, Parse reads as the same, and what has no unit or another one
// is none.
func TestText(t *testing.T) {
	for _, k := range Kinds() {
		for _, n := range []int64{1, 999, 1000, 1024, 1536, 65_535, k.Max()} {
			if back, ok := k.Parse(k.Format(n)); !ok || back != n {
				t.Errorf("%s: %d is written as %s and read as %d, %v", k, n, k.Format(n), back, ok)
			}
		}
		for _, s := range []string{"", "-1", "1.5", "1 kB", "1k", "1e3", "0x10", None} {
			if n, ok := k.Parse(s); ok {
				t.Errorf("%s: %q is read as %d", k, s, n)
			}
		}
		if _, ok := k.Parse("100"); ok == k.IsSize() {
			t.Errorf("%s: a number without a unit is %v", k, ok)
		}
		var b Budget
		if b.Set(k, 7); b.Get(k) != 7 || b == (Budget{}) {
			t.Errorf("%s: %+v", k, b)
		}
	}
}

// The documentation has a row for each budget.
func TestBudgetsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/allowlist.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Kinds() {
		if !strings.Contains(string(doc), "\n| `"+k.String()+"` |") {
			t.Errorf("docs/allowlist.md has no row for %s", k.String())
		}
	}
}
