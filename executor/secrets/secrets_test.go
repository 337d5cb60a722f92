package secrets_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/executor/secrets"
)

const value = "a-secret-of-the-tests"

// put writes a file of a directory of secrets, for its owner alone.
func put(t *testing.T, dir secrets.Directory, name, content string) string {
	t.Helper()
	path := filepath.Join(string(dir), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// reasonOf is why an error says that a secret is not to be had; no value may be in it.
func reasonOf(t *testing.T, err error) secrets.Reason {
	t.Helper()
	var e *secrets.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is of type %T", err, err)
	}
	if strings.Contains(err.Error(), value) {
		t.Errorf("the value is in %q", err)
	}
	return e.Reason
}

func TestGet(t *testing.T) {
	dir := secrets.Directory(t.TempDir())
	put(t, dir, "token", value+"\n")
	put(t, dir, "both", value)
	put(t, dir, "short", "12345678901\r\n")
	put(t, dir, "shortest", "123456789012\n")
	put(t, dir, "binary", value+"\x00")
	put(t, dir, "longest", strings.Repeat("x", secrets.MaxLength)+"\n")
	put(t, dir, "long", strings.Repeat("x", secrets.MaxLength+1))
	if err := os.Mkdir(filepath.Join(string(dir), "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	all := secrets.Sources{
		{Name: "the files", Provider: dir},
		{Name: "the environment", Provider: secrets.Environment(map[string]string{
			"SALLYPORT_SECRET_BOTH": value, "SALLYPORT_SECRET_GITHUB_RELEASE_TOKEN": value, "SALLYPORT_SECRETS_DIR": value, "OTHER": value, "SALLYPORT_SECRET_EMPTY": "",
		})},
	}
	for name, want := range map[string]string{
		"token": value + "\n", "github-release-token": value, "shortest": "123456789012\n", "longest": strings.Repeat("x", secrets.MaxLength) + "\n",
	} {
		if got, err := all.Get(t.Context(), name); err != nil || got != want {
			t.Errorf("%s: %.32q, %v", name, got, err)
		}
	}
	for name, want := range map[string]secrets.Reason{
		"both": secrets.Ambiguous, "short": secrets.Unfit, "binary": secrets.Unfit, "long": secrets.Unfit, "folder": secrets.Unreadable,
		"other": secrets.Unknown, "empty": secrets.Unknown, "dir": secrets.Unknown, "": secrets.Unknown, "../token": secrets.Unknown, "a/../token": secrets.Unknown, ".": secrets.Unknown,
	} {
		got, err := all.Get(t.Context(), name)
		if got != "" || reasonOf(t, err) != want {
			t.Errorf("%s: %.32q, %v", name, got, err)
		}
		if _, ok := all.Have(t.Context(), name); ok != (want != secrets.Unknown) {
			t.Errorf("%s: had is %t", name, ok)
		}
	}
	if _, err := all.Get(t.Context(), "both"); !strings.Contains(err.Error(), "the files and the environment both have it") {
		t.Errorf("two: %v", err)
	}
	if _, err := all.Get(t.Context(), "other"); !strings.HasSuffix(err.Error(), "put it into the files or the environment") {
		t.Errorf("nobody: %v", err)
	}
	if _, err := (secrets.Sources)(nil).Get(t.Context(), "token"); reasonOf(t, err) != secrets.Unknown || !strings.Contains(err.Error(), "there is none") {
		t.Errorf("without any source: %v", err)
	}
}

// TestDirectoryIsReadAnew: what is put in a secret's place is the next value, in one step.
func TestDirectoryIsReadAnew(t *testing.T) {
	dir := secrets.Directory(t.TempDir())
	put(t, dir, "token", value)
	all := secrets.Sources{{Name: "the files", Provider: dir}}
	if err := os.Rename(put(t, dir, ".next", "another-value-of-it"), filepath.Join(string(dir), "token")); err != nil {
		t.Fatal(err)
	}
	if got, err := all.Get(t.Context(), "token"); err != nil || got != "another-value-of-it" {
		t.Errorf("%q, %v", got, err)
	}
	if err := os.Remove(filepath.Join(string(dir), "token")); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Get(t.Context(), "token"); reasonOf(t, err) != secrets.Unknown {
		t.Errorf("removed: %v", err)
	}
}

// TestDirectoryIsPrivate: what others can read, or could have put there, is no secret.
func TestDirectoryIsPrivate(t *testing.T) {
	dir := secrets.Directory(t.TempDir())
	all := secrets.Sources{{Name: "the files", Provider: dir}}
	path := put(t, dir, "token", value)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := all.Get(t.Context(), "token"); reasonOf(t, err) != secrets.Unreadable || !strings.Contains(err.Error(), "chmod 0600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	if got, err := all.Get(t.Context(), "token"); got != value {
		t.Errorf("control: %q, %v", got, err)
	}
	if err := unix.Mkfifo(filepath.Join(string(dir), "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Get(t.Context(), "fifo"); reasonOf(t, err) != secrets.Unreadable {
		t.Errorf("a FIFO: %v", err)
	}
	if os.Geteuid() == 0 { // who cannot give a file away cannot be given one so
		if err := os.Chown(path, 4711, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := all.Get(t.Context(), "token"); reasonOf(t, err) != secrets.Unreadable || !strings.Contains(err.Error(), "4711") {
			t.Errorf("another user's: %v", err)
		}
	}
}

// vault is a provider of one method, which is at times out of reach.
type vault struct{ err error }

func (v vault) Secret(_ context.Context, name string) (string, bool, error) {
	return value, name == "leased", v.err
}

// TestVault: a provider needs no more than one method. While it cannot be asked nothing is
// given, for it may have any name.
func TestVault(t *testing.T) {
	dir := secrets.Directory(t.TempDir())
	put(t, dir, "token", value)
	all := secrets.Sources{{Name: "the files", Provider: dir}, {Name: "the vault", Provider: vault{}}}
	for _, name := range []string{"token", "leased"} {
		if got, err := all.Get(t.Context(), name); got != value {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	all[1].Provider = vault{errors.New("sealed")}
	for _, name := range []string{"token", "leased"} {
		if got, err := all.Get(t.Context(), name); got != "" || reasonOf(t, err) != secrets.Unreadable || !strings.Contains(err.Error(), "the vault: sealed") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := secrets.Directory(t.TempDir())
	put(t, dir, "token", value)
	put(t, dir, ".hidden", "x")
	values := secrets.Values{"ANTHROPIC_API_KEY": value, "NONE": ""}
	all := secrets.Sources{{Name: "the files", Provider: dir}, {Name: "the environment", Provider: values}, {Name: "the vault", Provider: vault{}}}
	found, err := all.Check(t.Context())
	if err != nil || len(found) != 2 || found["token"] != "the files" || found["ANTHROPIC_API_KEY"] != "the environment" {
		t.Fatalf("%v, %v", found, err)
	}
	asked := []string{"token", "leased", "NONE", "other", "ANTHROPIC_API_KEY"}
	if known := all[:2].Known(asked); !slices.Equal(known, []string{"token", "ANTHROPIC_API_KEY"}) {
		t.Errorf("known are %q", known)
	}
	if known := all.Known(asked); !slices.Equal(known, asked) { // a vault may have any
		t.Errorf("with a vault known are %q", known)
	}
	put(t, dir, "ANTHROPIC_API_KEY", value)
	put(t, dir, "OPENAI_API_KEY", "short")
	put(t, dir, "a name", value)
	if err := os.Chmod(string(dir), 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := all.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "go-w") {
		t.Errorf("others may write there: %v", err)
	}
	if err := os.Chmod(string(dir), 0o750); err != nil {
		t.Fatal(err)
	}
	_, err = all.Check(t.Context())
	for _, want := range []string{`"a name"`, "ANTHROPIC_API_KEY", "both have it", "OPENAI_API_KEY", "it has 5 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	all[0].Provider = dir + "/absent"
	if _, err := all.Check(t.Context()); err == nil {
		t.Error("a directory that is not there was taken")
	}
}
