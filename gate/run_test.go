package gate

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/gate/control"
	"sallyport/gate/settings"
	"sallyport/sniproxy/resolve"
)

// An allowlist that is missing, empty or malformed: an error with file and line,
// and nothing is open.
//
// probe: P1
// oracle: the error with file and line, and the control socket, which is not there; a
// good file starts
func TestRunRefusesAllowlist(t *testing.T) {
	dir := t.TempDir()
	set := settings.Settings{
		Allowlist: filepath.Join(dir, "allowlist.yaml"), ControlSocket: filepath.Join(dir, "control.sock"),
		Resolvers: []settings.DNSServer{settings.DNSServer(resolve.UDPServer(netip.MustParseAddrPort("192.0.2.1:53")))},
	}
	refused := func(t *testing.T, want string) {
		t.Helper()
		err := Run(t.Context(), set, "test", slog.New(slog.DiscardHandler), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %s", err, want)
		}
		if _, err := os.Lstat(set.ControlSocket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the control socket: %v", err)
		}
	}
	t.Run("missing", func(t *testing.T) { refused(t, set.Allowlist+": ") })
	for name, test := range map[string]struct{ text, where string }{
		"empty":       {"", ": "},
		"unknown key": {"version: 1\npolicys: {}\n", ":2:"},
		"syntax":      {"version: 1\npolicies: {strict: {allow: [a.example}\n", ":2:"},
		"wildcard":    {"version: 1\npolicies:\n  strict: {allow: ['*.com']}\n", ":3:"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(set.Allowlist, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			refused(t, set.Allowlist+test.where)
		})
	}

	if err := os.WriteFile(set.Allowlist, []byte(testAllowlist), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, set, "test", slog.New(slog.DiscardHandler), io.Discard) }()
	c := control.Client{Socket: set.ControlSocket}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if h, err := c.Health(t.Context()); err == nil {
			if h.Version != "test" || len(h.Policies) != 3 {
				t.Errorf("control: %+v", h)
			}
			break
		} else if time.Now().After(end) {
			t.Fatalf("control: %v", err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("control: %v", err)
	}
	if _, err := os.Lstat(set.ControlSocket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestForwardWarning(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ip_forward")
	for text, want := range map[string]bool{"0\n": false, "1\n": true, "": true} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if w := forwardWarning(path); (w != "") != want {
			t.Errorf("%q: %q", text, w)
		}
	}
	if forwardWarning(path+".none") == "" {
		t.Error("no word about a file that cannot be read")
	}
}
