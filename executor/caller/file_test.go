package caller_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor/caller"
)

// A token that others can read, or could have written, is none.
func TestLoadTokenIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte("a-token-of-the-tests\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := caller.LoadToken(path); err != nil || got != "a-token-of-the-tests" {
		t.Fatalf("control: %q, %v", got, err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := caller.LoadToken(path); err == nil || !strings.Contains(err.Error(), "chmod 0600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		return // who cannot give a file away cannot be given one so
	}
	if err := os.Chown(path, 4711, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := caller.LoadToken(path); err == nil || !strings.Contains(err.Error(), "4711") {
		t.Errorf("another user's: %v", err)
	}
	if err := os.Chown(filepath.Dir(path), 4711, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := caller.LoadToken(path); err != nil {
		t.Errorf("whose the directory is: %v", err)
	}
}

func TestLoadToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "token")
	made, err := caller.LoadToken(path)
	if err != nil || len(made) < 40 {
		t.Fatalf("token %q, %v", made, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if again, err := caller.LoadToken(path); err != nil || again != made {
		t.Errorf("the second time: %q, %v", again, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("left beside it: %v", left)
	}
	if err := os.WriteFile(path, []byte("short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := caller.LoadToken(path); err == nil {
		t.Error("a short token was taken")
	}
}
