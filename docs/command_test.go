package docs_test

import (
	"regexp"
	"strings"
	"testing"
)

var (
	commandUse  = regexp.MustCompile(`(?m)^\t\tUse: +"([a-z]+)`)
	commandFlag = regexp.MustCompile(`(?:Var|VarP|Bool|String|Int)\((?:&[a-z.A-Z]+, )?"([a-z-]+)"`)
	commandLine = regexp.MustCompile("(?:bin/|`|\\$ )sallyport ([a-z]+)([^`\n]*)")
	longFlag    = regexp.MustCompile(`(?:^| )--([a-z][a-z-]+)`)
)

// TestCommandsAreDocumented wants that the documents name every command of
// cmd/sallyport, none that there is not, and only flags that some command has.
func TestCommandsAreDocumented(t *testing.T) {
	told, flags := map[string]bool{}, map[string]bool{}
	for _, path := range files(t, ".go") {
		if !strings.HasPrefix(path, "cmd/sallyport/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range commandUse.FindAllStringSubmatch(read(t, path), -1) {
			told[m[1]] = m[1] == "sallyport"
		}
		for _, m := range commandFlag.FindAllStringSubmatch(read(t, path), -1) {
			flags[m[1]] = true
		}
	}
	if len(told) < 10 || len(flags) < 20 {
		t.Fatalf("only the commands %v and the flags %v were found", told, flags)
	}
	for _, path := range documents(t) {
		for _, m := range commandLine.FindAllStringSubmatch(read(t, path), -1) {
			if _, ok := told[m[1]]; !ok {
				t.Errorf("%s: there is no command sallyport %s", path, m[1])
			}
			told[m[1]] = true
			if below := strings.Fields(m[2]); len(below) > 0 {
				if _, ok := told[below[0]]; ok { // a command of that command
					told[below[0]] = true
				}
			}
			ours, _, _ := strings.Cut(m[2], " -- ")
			for _, f := range longFlag.FindAllStringSubmatch(ours, -1) {
				if !flags[f[1]] {
					t.Errorf("%s: sallyport %s has no flag --%s", path, m[1], f[1])
				}
			}
		}
	}
	for name, ok := range told {
		if !ok {
			t.Errorf("no document names sallyport %s", name)
		}
	}
}
