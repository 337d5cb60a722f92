package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"sallyport/internal/fileowner"
)

// ListenSocket listens on a unix socket that only its owner may connect to, who is that
// of the directory, as for the token. One that is left there goes: whoever calls this
// is the one executor of its state directory.
func ListenSocket(path string) (net.Listener, error) {
	const most = len(syscall.RawSockaddrUnix{}.Path) - 1
	if len(path) > most {
		return nil, fmt.Errorf("the path of the API's socket, %s, has %d bytes; it may have %d: choose another with SALLYPORT_API_SOCKET", path, len(path), most)
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("the API's socket, %s, is something else: remove it", path)
	case err == nil:
		err = os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("the API's socket: %w", err)
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("the API's socket: %w", err)
	}
	chown := func(uid, gid int) error { return os.Chown(path, uid, gid) }
	err = errors.Join(os.Chmod(path, 0o600), fileowner.GiveLike(filepath.Dir(path), chown))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the API's socket: %w", err), ln.Close())
	}
	return ln, nil
}
