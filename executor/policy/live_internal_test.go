package policy

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestSameTick: two changes of the same length within one tick of the clock leave the
// same stamp, and the second one counts all the same.
func TestSameTick(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profiles.yaml")
	write := func(version string) {
		t.Helper()
		text := "version: 1\npolicyVersion: " + version + "\ndefault: p\nprofiles: {p: {egress: all, tasks: all}}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	l, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	write("2")
	l.seen = look(path) // as if it were that of the first
	if got := l.Profiles().Version(); got != 2 {
		t.Errorf("policyVersion %d is in force, the file has 2", got)
	}
}
