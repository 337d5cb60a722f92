package githubauth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"sallyport/githubauth/rest"

	"github.com/bradleyfalzon/ghinstallation/v2"
)

// DefaultAPIBaseURL is the API of github.com.
const DefaultAPIBaseURL = rest.DefaultBaseURL

// Config says which App acts, and where.
type Config struct {
	// AppID is the App's number, which its settings page shows.
	AppID int64
	// Signer signs with the App's private key.
	Signer Signer
	// APIBaseURL is the address of GitHub's API. If "", DefaultAPIBaseURL; for
	// GitHub Enterprise Server it is https://HOST/api/v3/.
	APIBaseURL string
	// Roots are the CAs that may vouch for the API. If nil, the system's.
	Roots *x509.CertPool
	// Dial opens connections to the API. If nil, a net.Dialer does.
	Dial rest.Dial
	// Log gets what no caller sees: a clock that is off, a token that could not be
	// revoked. If nil, nothing does.
	Log *slog.Logger
}

// An App mints and revokes tokens. Its methods may be called at the same time.
type App struct {
	id    int64
	base  *url.URL
	log   *slog.Logger
	clock *clock
	asApp *rest.Endpoint // signs each request as the App
	plain *rest.Endpoint // has no credential of its own

	mu            sync.Mutex
	installations map[string]installation // by owner in lower case; guarded by mu
	identity      Identity                // zero until known; guarded by mu
}

// NewApp returns the App that c describes. It asks GitHub nothing yet.
func NewApp(c Config) (*App, error) {
	if c.AppID <= 0 {
		return nil, fmt.Errorf("make a GitHub App: %d is no App's number", c.AppID)
	}
	if c.Signer == nil {
		return nil, errors.New("make a GitHub App: it has no private key")
	}
	base, err := rest.ParseBase(c.APIBaseURL)
	if err != nil {
		return nil, fmt.Errorf("make a GitHub App: %w", err)
	}
	a := &App{id: c.AppID, base: base, log: c.Log, clock: new(clock), installations: make(map[string]installation)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	transport := rest.NewTransport(c.Roots, c.Dial)
	signer := claimer{Signer: c.Signer, issuer: c.AppID, clock: a.clock}
	signing, err := ghinstallation.NewAppsTransportWithOptions(transport, c.AppID, ghinstallation.WithSigner(signer))
	if err != nil {
		return nil, fmt.Errorf("make a GitHub App: %w", err)
	}
	a.asApp, a.plain = rest.NewEndpoint(base, signing), rest.NewEndpoint(base, transport)
	return a, nil
}

// Hosts are the hosts that a run needs.
func (a *App) Hosts() Hosts { return hostsOf(a.base) }

// unknownApp is what GitHub writes where the issuer of a JWT is no App. Its status
// is that of whatever else is not there, so the words have to tell.
const unknownApp = "Integration not found"

// do makes a call as the App. Where GitHub does not take the JWT and its clock is
// another than was thought, it learns that and tries once more.
func (a *App) do(ctx context.Context, c rest.Call) (rest.Answer, error) {
	before := a.clock.offset()
	got, err := a.asApp.Do(ctx, c)
	e, ok := errors.AsType[*rest.Error](err)
	if ok && e.Status == http.StatusNotFound && strings.Contains(e.Says, unknownApp) {
		e.Reason = rest.ReasonUnauthorized
		e.Problem = fmt.Sprintf("GitHub knows no App %d%s: is that the App ID on its settings page, and of this GitHub?", a.id, e.Says)
	}
	if !ok || e.Status != http.StatusUnauthorized {
		return got, err
	}
	ahead := time.Until(e.Date).Round(time.Second)
	switch {
	case e.Date.IsZero(), (ahead - before).Abs() < askewFrom:
		e.Problem += fmt.Sprintf("; is the private key that of App %d, and not deleted there?", a.id)
		return rest.Answer{}, e
	case ahead.Abs() > maxSkew:
		e.Reason, e.Problem = rest.ReasonClock, "this machine's clock is "+direction(ahead)+" GitHub's: set it"
		return rest.Answer{}, e
	}
	a.clock.learn(e.Date)
	a.log.WarnContext(ctx, "this machine's clock is off", "clock", direction(ahead)+" GitHub's")
	return a.asApp.Do(ctx, c)
}

// direction puts how far GitHub's clock is ahead in terms of ours.
func direction(ahead time.Duration) string {
	if ahead < 0 {
		return (-ahead).String() + " ahead of"
	}
	return ahead.String() + " behind"
}

var slugForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// Identity is the App's bot account. It is asked for once; t is the credential for
// that, because GitHub Enterprise Server may show accounts to no one without; the
// zero Token asks without. The error is an *Error.
func (a *App) Identity(ctx context.Context, t Token) (Identity, error) {
	a.mu.Lock()
	known := a.identity
	a.mu.Unlock()
	if known != (Identity{}) {
		return known, nil
	}
	const op = "find out the App's identity"
	ctx, cancel := context.WithTimeout(ctx, rest.Timeout)
	defer cancel()
	slug, err := a.slug(ctx, op)
	if err != nil {
		return Identity{}, err
	}
	found, err := account(ctx, a.plain, a.Hosts(), rest.Call{Op: op, Method: http.MethodGet, Token: t.Value(),
		Path: "users/" + url.PathEscape(slug+"[bot]")})
	if err != nil {
		return Identity{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.identity = found
	return found, nil
}

// Slug asks GitHub what the App is called, such as "acme-helper". An answer says
// that the App's number and its key are right. It takes 30 s at most; the error is an
// *Error.
func (a *App) Slug(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, rest.Timeout)
	defer cancel()
	return a.slug(ctx, "look for the GitHub App")
}

func (a *App) slug(ctx context.Context, op string) (string, error) {
	got, err := a.do(ctx, rest.Call{Op: op, Method: http.MethodGet, Path: "app"})
	if err != nil {
		return "", err
	}
	var app struct {
		Slug string `json:"slug"`
	}
	if err := rest.Decode(op, got.Body, &app); err != nil {
		return "", err
	}
	if !slugForm.MatchString(app.Slug) {
		return "", rest.Malformed(op, "GitHub's answer does not name the App")
	}
	return app.Slug, nil
}
