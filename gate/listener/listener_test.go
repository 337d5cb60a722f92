package listener_test

import (
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/gate/listener"
)

// TestControl finds all sorts of things in the socket's place.
//
// probe: N8
// oracle: the mode of the socket's file, and files of others that stay as they were
func TestControl(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	open := func(t *testing.T) net.Listener {
		t.Helper()
		ln, err := listener.Control(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	refused := func(t *testing.T, want string) {
		t.Helper()
		if ln, err := listener.Control(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listener %v, error %v; want one with %q", ln, err, want)
		}
	}
	ln := open(t)
	if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v; want a socket of its owner alone", info.Mode(), err)
	}
	refused(t, "another gate answers")

	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	ln.Close() // as a gate does that is killed
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	open(t).Close()

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, "no socket")
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("the file: %q, %v", b, err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".moved", path); err != nil {
		t.Fatal(err)
	}
	refused(t, "no socket")
	path = filepath.Join(t.TempDir(), "none", "control.sock")
	refused(t, "no such file or directory")
}

// The metrics are served on an address of this machine only.
func TestMetricsAddressIsOurs(t *testing.T) {
	if _, err := listener.Metrics(t.Context(), netip.MustParseAddrPort("192.0.2.1:0")); err == nil {
		t.Error("listens on an address of others")
	}
}
