package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/client"
	"sallyport/internal/fileowner"
)

const (
	defaultAddr  = "http://127.0.0.1:7280"
	defaultStack = "sallyport"

	socketScheme = "unix://"
	socketFile   = "api.sock" // in the executor's state directory
)

func (a *app) tokenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "token",
		Short: "Print the executor's bearer token",
		Args:  atMost(0),
		RunE: func(*cobra.Command, []string) error {
			token, _, err := a.findToken()
			if err == nil {
				_, err = fmt.Fprintln(a.stdout, token)
			}
			return err
		},
	}
}

// findToken returns the bearer token and where it came from.
func (a *app) findToken() (token, from string, err error) {
	if token := strings.TrimSpace(a.getenv("SALLYPORT_TOKEN")); token != "" {
		return token, "SALLYPORT_TOKEN", nil
	}
	path := a.getenv("SALLYPORT_TOKEN_FILE")
	if path == "" {
		path = filepath.Join(a.stateDir(), "token")
	}
	data, err := readToken(path)
	token = strings.TrimSpace(string(data))
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("the token in %s is not readable for this user: run as the one who owns it, or set SALLYPORT_TOKEN", path)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("no token: there is no %s; the executor writes one into its state directory when it starts (make up). "+
			"Set SALLYPORT_STATE to another directory, SALLYPORT_TOKEN_FILE to another file, or SALLYPORT_TOKEN to the token itself", path)
	case err != nil:
		err = fmt.Errorf("read the token: %w", err)
	case token == "" || strings.ContainsAny(token, " \r\n\t"):
		err = fmt.Errorf("%s does not hold a token", path)
	}
	if err != nil {
		return "", path, &exitError{code: exitUsage, err: err}
	}
	return token, path, nil
}

// maxToken bounds a file that holds a token, in bytes.
const maxToken = 4 << 10

// readToken reads a file with a token, or a pipe as a shell makes it.
func readToken(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().IsRegular() {
		if err := fileowner.Private(path, info); err != nil {
			return nil, err
		}
		if owner, self := fileowner.Of(info).UID, os.Geteuid(); owner != 0 && owner != self && self != 0 {
			return nil, fmt.Errorf("%s belongs to the user %d, who is neither root nor this user (%d)", path, owner, self)
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err == nil && len(data) > maxToken {
		err = fmt.Errorf("%s is longer than a token", path)
	}
	return data, err
}

// stateDir is the executor's state directory, where the scripts place that of the
// stack which the environment names.
func (a *app) stateDir() string {
	if dir := a.getenv("SALLYPORT_STATE"); dir != "" {
		return dir
	}
	stack := cmp.Or(a.getenv("SALLYPORT_STACK"), defaultStack)
	if os.Geteuid() == 0 {
		return filepath.Join("/var/lib", stack)
	}
	if dir := a.getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, stack)
	}
	return filepath.Join(a.getenv("HOME"), ".local/state", stack)
}

// client makes the client of the executor, with the token.
func (a *app) client() (*client.Client, error) {
	c, err := a.anonymous()
	if err != nil {
		return nil, err
	}
	c.Token, _, err = a.findToken()
	return c, err
}

// anonymous makes the client of the executor, without the token.
func (a *app) anonymous() (*client.Client, error) {
	addr := cmp.Or(a.addr, a.getenv("SALLYPORT_ADDR"))
	if addr == "" { // never a port, on which any user of this machine could wait for the token
		addr = socketScheme + filepath.Join(a.stateDir(), socketFile)
	}
	if path, ok := strings.CutPrefix(addr, socketScheme); ok {
		if !filepath.IsAbs(path) {
			return nil, usage("%q is not the address of an executor's socket, such as %s/var/lib/sallyport/%s", addr, socketScheme, socketFile)
		}
		return &client.Client{Addr: addr}, nil
	}
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	u, err := url.Parse(addr)
	if err == nil {
		addr = u.Redacted()
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, usage("%q is not the address of an executor, such as %s", addr, defaultAddr)
	}
	if u.Scheme == "http" && !loopback(u) {
		fmt.Fprintf(a.stderr, "warning: the token and all else goes to %s in clear text\n", terminal.Safe(u.Host))
	}
	return &client.Client{Addr: strings.TrimSuffix(u.String(), "/")}, nil
}

// loopback reports whether u leads to this machine.
func loopback(u *url.URL) bool {
	host, _, err := net.SplitHostPort(u.Host)
	if err != nil {
		host = strings.Trim(u.Host, "[]")
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
