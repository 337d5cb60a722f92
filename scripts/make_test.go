package scripts_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var phony = regexp.MustCompile(`(?m)^\.PHONY: (.*)$`)

// TestMakeWithoutTarget wants that a bare make starts nothing: it lists the targets,
// each with its line.
func TestMakeWithoutTarget(t *testing.T) {
	for _, name := range []string{"MAKEFLAGS", "MAKELEVEL", "MFLAGS"} { // of the make that runs the tests
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	if would := mustBash(t, nil, "make -n"); strings.Contains(would, "scripts/") {
		t.Fatalf("a bare make would run %s", would)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(mustBash(t, nil, "make")) {
		words := strings.Fields(line)
		if len(words) < 4 || words[0] != "make" {
			t.Errorf("a target without words about it: %q", line)
			continue
		}
		listed[words[1]] = true
	}
	m := phony.FindStringSubmatch(read(t, "../Makefile"))
	if m == nil {
		t.Fatal("the Makefile has no .PHONY")
	}
	for _, target := range strings.Fields(m[1]) {
		if !listed[target] {
			t.Errorf("make does not list %s", target)
		}
		if _, err := os.Stat(target); target != "help" && err != nil {
			t.Errorf("there is no scripts/%s", target)
		}
	}
}
