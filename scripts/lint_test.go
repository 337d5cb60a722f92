package scripts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLintFailsOnWhatItFinds plays the linters, and wants that a check which could
// not be made is told from one that found something.
func TestLintFailsOnWhatItFinds(t *testing.T) {
	const unreachable = `govulncheck: fetching vulnerabilities: Get "https://vuln.go.dev/": no such host`
	for _, tt := range []struct {
		name, fails, says string
		status            int
		args              string
		ok                bool
	}{
		{"nothing", "none", "", 0, "", true},
		{"a vulnerability", "govulncheck", "Vulnerability #1", 3, "", false},
		{"no database", "govulncheck", unreachable, 1, "", true},
		{"packages that do not load", "govulncheck", "govulncheck: loading packages:", 1, "", false},
		{"a vulnerability that nobody looks for", "govulncheck", "Vulnerability #1", 3, "offline", true},
		{"go.mod", "mod", "diff go.mod", 1, "offline", false},
		{"vet", "vet", "unreachable code", 1, "offline", false},
		{"staticcheck", "staticcheck", "SA4006", 1, "offline", false},
		{"form", "gofmt", "firewall/allowlist.go", 0, "offline", false},
		{"a script", "shellcheck", "SC2086", 1, "offline", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bin := t.TempDir()
			played := fmt.Sprintf("#!/bin/sh\ncase \"$0 $*\" in *%s*) echo '%s'; exit %d;; esac\n", tt.fails, tt.says, tt.status)
			for _, program := range []string{"go", "gofmt", "shellcheck"} {
				write(t, filepath.Join(bin, program), played, 0o755)
			}
			out, err := bash([]string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "scripts/lint "+tt.args+" 2>&1")
			if (err == nil) != tt.ok {
				t.Errorf("%v\n%s", err, out)
			}
			if tt.args == "" && !strings.Contains(out, tt.says) {
				t.Errorf("it says %q, want %q in it", out, tt.says)
			}
			if tt.says == unreachable && !strings.Contains(out, "were not looked for") {
				t.Errorf("it says %q", out)
			}
		})
	}
}

// TestTestLints requires the linters and the tests of all modules in what continuous integration runs.
func TestTestLints(t *testing.T) {
	for file, all := range map[string][]string{
		"../.ci/run":  {"\nmake test\n"},
		"../Makefile": {"\n\tscripts/test\n"},
		"test":        {"\nscripts/lint offline\n", " ./...\nfor module in compose/internet executor/audit/others; do\n  (cd $module && go test "}, // of all modules
	} {
		for _, runs := range all {
			if !strings.Contains(read(t, file), runs) {
				t.Errorf("%s does not run %s", file, strings.TrimSpace(runs))
			}
		}
	}
}
