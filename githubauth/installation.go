package githubauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An installation is the App's in one account.
type installation struct {
	ID      int64 `json:"id"`
	Account struct {
		Login string `json:"login"`
	} `json:"account"`
	Permissions Permissions `json:"permissions"`
	SuspendedAt *time.Time  `json:"suspended_at"`
}

// installation finds the App's installation for owner; fresh passes over the one
// that is known. That there is none is not remembered: somebody may be about to
// install it.
func (a *App) installation(ctx context.Context, op, owner string, fresh bool) (installation, error) {
	key := strings.ToLower(owner)
	a.mu.Lock()
	known, ok := a.installations[key]
	a.mu.Unlock()
	if ok && !fresh {
		return known, nil
	}
	found, err := a.findInstallation(ctx, op, owner)
	if err != nil {
		return installation{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.installations[key] = found
	return found, nil
}

func (a *App) findInstallation(ctx context.Context, op, owner string) (installation, error) {
	// The first path serves users and, on github.com, organizations, too.
	got, err := a.do(ctx, call{op: op, method: http.MethodGet, path: "users/" + owner + "/installation"})
	if absent(err) {
		got, err = a.do(ctx, call{op: op, method: http.MethodGet, path: "orgs/" + owner + "/installation"})
	}
	if e, ok := errors.AsType[*Error](err); ok && absent(err) {
		return installation{}, &Error{Op: op, Status: http.StatusNotFound, Reason: ReasonNotInstalled,
			Problem: fmt.Sprintf("App %d is not installed for %s%s: install it there, or name the owner rightly", a.id, owner, e.says)}
	}
	if err != nil {
		return installation{}, err
	}
	var found installation
	if err := decode(op, got.body, &found); err != nil {
		return installation{}, err
	}
	switch {
	case found.ID <= 0 || found.Account.Login == "":
		return installation{}, malformed(op, "GitHub's answer names no installation: is the address of its API right?")
	case !strings.EqualFold(found.Account.Login, owner):
		return installation{}, &Error{Op: op, Reason: ReasonNotInstalled,
			Problem: owner + " is called " + clean(found.Account.Login) + " now: name it so"}
	case found.SuspendedAt != nil:
		return installation{}, suspended(op, owner)
	}
	return found, nil
}

// forget drops what is known of an owner's installation, so that the next run
// looks for it anew.
func (a *App) forget(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.installations, strings.ToLower(owner))
}

func suspended(op, owner string) *Error {
	return &Error{Op: op, Reason: ReasonNotPermitted,
		Problem: "the App's installation for " + owner + " is suspended: an administrator there can lift that"}
}

// lacks says which permission of a grant's profile the installation does not have,
// "" where it has them all.
func (in installation) lacks(g Grant) string {
	wide, ok := errors.AsType[*WiderError](g.Profile.Permissions.Within(in.Permissions))
	if !ok {
		return ""
	}
	return fmt.Sprintf("the App's installation for %s does not have %s: %s, which profile %q needs: "+
		"add it in the App's settings and accept it for %s", g.Owner, wide.Permission, wide.Level, g.Profile.Name, g.Owner)
}

// absent reports whether what was asked for is not there, or not to be seen.
func absent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound && e.Reason == ReasonNotPermitted
}

// status is the HTTP status of a refusal, 0 where there is none.
func status(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// Outside returns those of a grant's repositories that the App cannot act on,
// because it is not installed there or the installation does not include them. That
// the installation is suspended, or does not have what the profile needs, is an
// error, which is an *Error.
func (a *App) Outside(ctx context.Context, g Grant) ([]string, error) {
	op := "look for the App's installation for " + clean(g.Owner)
	if err := g.check(); err != nil {
		return nil, &Error{Op: op, Reason: ReasonInvalidGrant, Problem: err.Error(), err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, overallTimeout)
	defer cancel()
	var outside []string
	for _, name := range g.Repositories {
		in, err := a.installationOf(ctx, op, g.Owner, name)
		if err != nil {
			return nil, err
		}
		switch problem := in.lacks(g); {
		case in.ID <= 0 || !strings.EqualFold(in.Account.Login, g.Owner):
			outside = append(outside, name)
		case in.SuspendedAt != nil:
			return nil, suspended(op, g.Owner)
		case problem != "":
			return nil, &Error{Op: op, Reason: ReasonNotPermitted, Problem: problem}
		}
	}
	return outside, nil
}

// installationOf finds the installation that a repository is in, the zero one where
// there is none.
func (a *App) installationOf(ctx context.Context, op, owner, repository string) (installation, error) {
	got, err := a.do(ctx, call{op: op, method: http.MethodGet, path: "repos/" + owner + "/" + repository + "/installation"})
	if absent(err) || status(err) == http.StatusMovedPermanently { // it has another name now
		return installation{}, nil
	}
	if err != nil {
		return installation{}, err
	}
	var found installation
	err = decode(op, got.body, &found)
	return found, err
}
