package statedir

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/internal/output"
)

// TestCleaner has a workspace that cannot be removed at first, beside one that can.
func TestCleaner(t *testing.T) {
	dir, log := t.TempDir(), &output.Buffer{}
	for _, name := range []string{"old", "new"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "a", "b"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := NewCleaner(filepath.Join(dir, "old"), slog.New(slog.NewJSONHandler(log, nil)))
	stuck := filepath.Join(dir, "absent", "stuck") // not even the directory above can be opened
	c.Add(stuck)
	c.Add(filepath.Join(dir, "new"))
	c.First()
	for _, name := range []string{"old/a", "new"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s is still there", name)
		}
	}
	if len(c.left) != 1 || !strings.Contains(log.String(), "could not be removed") || !strings.Contains(log.String(), stuck) {
		t.Errorf("left: %v, log: %s", c.left, log)
	}
	if err := os.MkdirAll(stuck, 0o700); err != nil {
		t.Fatal(err)
	}
	c.First()
	if _, err := os.Stat(stuck); err == nil || len(c.left) != 0 {
		t.Errorf("left: %v", c.left)
	}
}
