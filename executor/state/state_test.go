package state_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor/state"
)

func TestOpen(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "a b?c.db")
	db, err := state.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO idempotency_key VALUES ('team', 'k', 'e', 'd', 1)"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, path + "-wal"} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	copied := filepath.Join(filepath.Dir(path), "copy.db")
	if err := state.Copy(ctx, db, copied); err != nil {
		t.Fatal(err)
	}
	if err := state.Copy(ctx, db, copied); err == nil {
		t.Error("a copy was written over a file that was there")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{path, copied} { // as they are after a restart
		db, err := state.Open(ctx, file)
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
		n, mode := 0, ""
		if err := db.QueryRow("SELECT count(*) FROM idempotency_key").Scan(&n); err != nil || n != 1 {
			t.Errorf("%s has %d rows: %v", file, n, err)
		}
		if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Errorf("%s is in mode %s: %v", file, mode, err)
		}
		if _, err := db.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, 1)"); err != nil {
			t.Fatal(err)
		}
		db.Close()
		if _, err := state.Open(ctx, file); err == nil || !strings.Contains(err.Error(), "newer release") {
			t.Errorf("a file of a newer release: %v", err)
		}
	}
	if err := os.WriteFile(path, []byte("no database at all, but a text that is long enough"), 0o600); err != nil {
		t.Fatal(err)
	}
	os.Remove(path + "-wal")
	if _, err := state.Open(ctx, path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a text: %v", err)
	}
}
