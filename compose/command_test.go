package compose_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandLine runs a command as a person at a terminal does: by the socket in the
// state directory, which belongs to whom that does, and to the command's own exit code.
func TestCommandLine(t *testing.T) {
	out, err := st.script("bash", "-c", `. scripts/env.sh && exec bin/sallyport run -- sh -c 'echo by the socket; exit 7'`)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 || !strings.Contains(out, "by the socket\n") {
		t.Errorf("%v: %s", err, out)
	}
	info, err := os.Stat(filepath.Join(st.state, "api.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	out, err = st.script("bash", "-c", `. scripts/env.sh && SALLYPORT_STATE=/nowhere SALLYPORT_TOKEN=0123456789abcdef exec bin/sallyport runs`)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 3 || !strings.Contains(out, "unix:///nowhere/api.sock cannot be reached") {
		t.Errorf("no socket: %v: %s", err, out)
	}
}
