package githubauth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
)

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
	Dial Dial
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
	asApp *endpoint // signs each request as the App
	plain *endpoint // has no credential of its own

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
	base, err := parseBase(c.APIBaseURL)
	if err != nil {
		return nil, fmt.Errorf("make a GitHub App: %w", err)
	}
	a := &App{id: c.AppID, base: base, log: c.Log, clock: new(clock), installations: make(map[string]installation)}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	transport := newTransport(c.Roots, c.Dial)
	signer := claimer{Signer: c.Signer, issuer: c.AppID, clock: a.clock}
	signing, err := ghinstallation.NewAppsTransportWithOptions(transport, c.AppID, ghinstallation.WithSigner(signer))
	if err != nil {
		return nil, fmt.Errorf("make a GitHub App: %w", err)
	}
	a.asApp, a.plain = newEndpoint(base, signing), newEndpoint(base, transport)
	return a, nil
}

// Hosts are the hosts that a run needs.
func (a *App) Hosts() Hosts { return hostsOf(a.base) }

// unknownApp is what GitHub writes where the issuer of a JWT is no App. Its status
// is that of whatever else is not there, so the words have to tell.
const unknownApp = "Integration not found"

// do makes a call as the App. Where GitHub does not take the JWT and its clock is
// another than was thought, it learns that and tries once more.
func (a *App) do(ctx context.Context, c call) (answer, error) {
	before := a.clock.offset()
	got, err := do(ctx, a.asApp, c)
	e, ok := errors.AsType[*Error](err)
	if ok && e.Status == http.StatusNotFound && strings.Contains(e.says, unknownApp) {
		e.Reason = ReasonUnauthorized
		e.Problem = fmt.Sprintf("GitHub knows no App %d%s: is that the App ID on its settings page, and of this GitHub?", a.id, e.says)
	}
	if !ok || e.Status != http.StatusUnauthorized {
		return got, err
	}
	ahead := time.Until(e.date).Round(time.Second)
	switch {
	case e.date.IsZero(), (ahead - before).Abs() < askewFrom:
		e.Problem += fmt.Sprintf("; is the private key that of App %d, and not deleted there?", a.id)
		return answer{}, e
	case ahead.Abs() > maxSkew:
		e.Reason, e.Problem = ReasonClock, "this machine's clock is "+direction(ahead)+" GitHub's: set it"
		return answer{}, e
	}
	a.clock.learn(e.date)
	a.log.WarnContext(ctx, "this machine's clock is off", "clock", direction(ahead)+" GitHub's")
	return do(ctx, a.asApp, c)
}

// direction puts how far GitHub's clock is ahead in terms of ours.
func direction(ahead time.Duration) string {
	if ahead < 0 {
		return (-ahead).String() + " ahead of"
	}
	return ahead.String() + " behind"
}
