package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestReplaceFileKeepsOwner: learn --write, as root, leaves the file to its owner.
func TestReplaceFileKeepsOwner(t *testing.T) {
	path := filepath.Join(t.TempDir(), "allowlist.yaml")
	if err := os.WriteFile(path, []byte("a"), 0o640); err != nil {
		t.Fatal(err)
	}
	owner := os.Getuid()
	if owner == 0 {
		owner = 4711
	}
	if err := os.Chown(path, owner, -1); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(path, []byte("a"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st := info.Sys().(*syscall.Stat_t); int(st.Uid) != owner || info.Mode().Perm() != 0o640 {
		t.Errorf("owner %d, mode %v; want %d and 0640", st.Uid, info.Mode(), owner)
	}
}
