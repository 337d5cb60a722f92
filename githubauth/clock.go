package githubauth

import (
	"strconv"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v4"
)

// The times of an App's JWT. GitHub refuses one from the future and one that is
// good for more than ten minutes (its documentation, "Generating a JSON Web
// Token"). One is used within seconds.
const (
	issuedAgo = 60 * time.Second // how far iat lies back, for clocks that run ahead
	validFor  = 2 * time.Minute  // how far exp lies ahead
)

const (
	// askewFrom is from when on a clock may be why a JWT was not taken.
	askewFrom = 30 * time.Second
	// maxSkew is how far a clock may be off. More than that is no drift but a clock
	// that was never set, and logs and time limits go wrong with it.
	maxSkew = 10 * time.Minute
)

// A clock knows how far GitHub's clock is from this machine's.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration // GitHub's over ours; guarded by mu
}

// now is GitHub's time, as far as is known.
func (c *clock) now() time.Time {
	return time.Now().Add(c.offset())
}

// offset is how far GitHub's clock is taken to be ahead.
func (c *clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// learn takes GitHub's time, of just now, to be date.
func (c *clock) learn(date time.Time) (ahead time.Duration) {
	ahead = time.Until(date).Round(time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = ahead
	return ahead
}

// A claimer is the Signer of an App: it gives the claims that ghinstallation makes
// GitHub's time.
type claimer struct {
	Signer
	issuer int64
	clock  *clock
}

// Sign ignores the claims that it is given, whose times are this machine's.
func (c claimer) Sign(jwt.Claims) (string, error) {
	now := c.clock.now().Truncate(time.Second) // GitHub takes whole seconds only
	return c.Signer.Sign(&jwt.RegisteredClaims{
		IssuedAt:  jwt.NewNumericDate(now.Add(-issuedAgo)),
		ExpiresAt: jwt.NewNumericDate(now.Add(validFor)),
		Issuer:    strconv.FormatInt(c.issuer, 10),
	})
}
