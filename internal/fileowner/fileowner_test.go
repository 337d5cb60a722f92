package fileowner_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/internal/fileowner"
)

func TestPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, private := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o620: false, 0o601: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		err = fileowner.Private(path, info)
		if (err == nil) != private || err != nil && !strings.Contains(err.Error(), path+" has the mode 0") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

// TestGive has files given to this process, which needs no call, and to another user.
func TestGive(t *testing.T) {
	refused := errors.New("refused by the test")
	chown := func(int, int) error { return refused }
	own, err := fileowner.OfPath(t.TempDir())
	if want := (fileowner.Owner{UID: os.Geteuid(), GID: os.Getegid()}); err != nil || own != want {
		t.Fatalf("owner %+v, %v, want %+v", own, err, want)
	}
	if err := own.Give(chown); err != nil {
		t.Errorf("its own: %v", err)
	}
	var got fileowner.Owner
	other := fileowner.Owner{UID: 4711, GID: 4712}
	err = other.Give(func(uid, gid int) error { got = fileowner.Owner{UID: uid, GID: gid}; return nil })
	if err != nil || got != other {
		t.Errorf("given to %+v, %v", got, err)
	}
	if err := other.Give(chown); !errors.Is(err, refused) {
		t.Errorf("what cannot be given: %v", err)
	}
	if err := fileowner.GiveLike(filepath.Join(t.TempDir(), "absent"), chown); err != nil {
		t.Errorf("like a directory that is not there: %v", err)
	}
}
