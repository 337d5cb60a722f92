package main

import (
	"cmp"
	"context"
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
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
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

func (a *app) tokensCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tokens",
		Short: "Make, list and revoke the tokens of tenants and principals",
		Args:  atMost(0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	list := &cobra.Command{Use: "list", Short: "List the tokens, the newest first", Args: atMost(0)}
	list.RunE = func(cmd *cobra.Command, _ []string) error { return a.listTokens(cmd.Context(), asJSON) }
	list.Flags().BoolVar(&asJSON, "json", false, "print them as JSON, one on a line")
	revoke := &cobra.Command{
		Use:   "revoke TOKEN...",
		Short: "Revoke tokens by their identifiers; calls under way with them end, runs go on",
		RunE:  func(cmd *cobra.Command, args []string) error { return a.revokeTokens(cmd.Context(), args) },
	}
	cmd.AddCommand(a.createTokenCommand(), list, revoke)
	return cmd
}

func (a *app) createTokenCommand() *cobra.Command {
	var r api.TokenRequest
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "create PRINCIPAL",
		Short: "Make a token and print it, this once",
		Example: `  sallyport tokens create ci --tenant acme --rights run,read
  sallyport tokens create alice --tenant acme --rights read,approve,operate --for 720h`,
		Args: exactly("PRINCIPAL, who will make calls with it,"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Principal = args[0]
			if cmd.Flags().Changed("for") {
				r.ExpiresAt = time.Now().Add(life).UTC().Format(time.RFC3339)
			}
			return a.createToken(cmd.Context(), r)
		},
	}
	cmd.Flags().StringSliceVar(&r.Rights, "rights", []string{"run", "read"}, "some of run, read, approve and operate")
	cmd.Flags().DurationVar(&life, "for", 0, "how long it is good, such as 720h; 90 days by default, at most 366")
	return cmd
}

func (a *app) createToken(ctx context.Context, r api.TokenRequest) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	t, err := c.MakeToken(ctx, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stderr, "%s: %s, %s, until %s; it is shown this once\n",
		terminal.Safe(t.ID), terminal.Safe(whose(t)), strings.Join(t.Rights, ", "), t.ExpiresAt.Local().Format(time.DateTime))
	_, err = fmt.Fprintln(a.stdout, terminal.Safe(t.Token))
	return err
}

func (a *app) listTokens(ctx context.Context, asJSON bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	list, err := c.Tokens(ctx)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	defer t.Flush()
	if !asJSON && len(list.Tokens) > 0 {
		fmt.Fprintln(t, "TOKEN\tWHOSE\tRIGHTS\tMADE\tBY\tLAST USED\tEND")
	}
	for _, token := range list.Tokens {
		if asJSON {
			err = a.printJSON(token, "")
		} else {
			_, err = fmt.Fprintln(t, tokenRow(token, time.Now()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tokenRow is the line of one token in the table.
func tokenRow(t api.Token, now time.Time) string {
	end, used := t.ExpiresAt.Local().Format(time.DateTime), "never"
	switch {
	case !t.RevokedAt.IsZero():
		end = "revoked " + t.RevokedAt.Local().Format(time.DateTime)
	case !now.Before(t.ExpiresAt):
		end = "expired " + end
	}
	if !t.LastUsedAt.IsZero() {
		used = t.LastUsedAt.Local().Format("2006-01-02 15h")
	}
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s", terminal.Cell(t.ID), terminal.Cell(whose(t)), strings.Join(t.Rights, ","),
		t.CreatedAt.Local().Format(time.DateTime), terminal.Cell(t.CreatedBy), used, end)
}

// whose is tenant and principal of a token.
func whose(t api.Token) string {
	if t.Tenant == "" {
		return t.Principal
	}
	return t.Tenant + "/" + t.Principal
}

func (a *app) revokeTokens(ctx context.Context, ids []string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return usage("TOKEN, the identifier of a token, is missing")
	}
	for _, id := range ids {
		t, err := c.RevokeToken(ctx, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "revoked %s of %s\n", terminal.Safe(t.ID), terminal.Safe(whose(t)))
	}
	return nil
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
	c.Tenant = a.tenant
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
