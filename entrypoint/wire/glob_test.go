package wire

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestGlobs(t *testing.T) {
	for _, g := range []string{"a", "*.txt", "**/x", "out/**", "{a,b/c}/d", "a/[a-z]*"} {
		if err := checkGlob(g); err != nil {
			t.Errorf("%q: %v", g, err)
		}
	}
	for _, g := range []string{"", "/a", "../a", "..", ".", "a/../b", "./a", "a//b", "a/", "[", "{a", "a\n",
		strings.Repeat("x", maxGlob+1), strings.Repeat("{a,b}", maxAlternatives+1)} {
		if err := checkGlob(g); err == nil {
			t.Errorf("%q is accepted", g)
		}
	}
	if err := CheckGlobs(slices.Repeat([]string{"a"}, maxGlobs+1)); err == nil {
		t.Error("any number of patterns is accepted")
	}
	tests := []struct {
		glob, dir          string
		possible, outright bool
	}{
		{"out/*.txt", "out", true, true},
		{"out/*.txt", "out/deep", false, false},
		{"out/*.txt", "other", false, false},
		{"o*/x", "out", true, true},
		{"out/**", "out/deep/er", true, false},
		{"**/x", "any/where", true, false},
		{"{a,b/c}/d", "b", true, false},
		{"a", "a", false, false},
		{"a/b/c", "a", true, true},
		{"a/b/c", "a/b", true, true},
	}
	for _, tt := range tests {
		possible, outright := Globs{tt.glob}.Below(tt.dir)
		if possible != tt.possible || outright != tt.outright {
			t.Errorf("%q below %q: %v, %v", tt.glob, tt.dir, possible, outright)
		}
	}
}

// FuzzGlobs: what a pattern matches, a walk by below must have entered.
func FuzzGlobs(f *testing.F) {
	f.Add("out/**/*.txt", "out/a/b/c.txt")
	f.Add("{a,b/c}/[d-f]?", "b/c/e1")
	f.Add("a\\*b/c", "a*b/c")
	f.Fuzz(func(t *testing.T, glob, name string) {
		if checkGlob(glob) != nil || filepath.Clean(name) != name || filepath.IsAbs(name) || strings.HasPrefix(name, "..") {
			return
		}
		gs := Globs{glob}
		if !gs.Match(name) {
			return
		}
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			if possible, _ := gs.Below(dir); !possible {
				t.Errorf("%q matches %q, but %q is not entered", glob, name, dir)
			}
		}
	})
}
