package githubauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"sallyport/githubauth/plain"
	"sallyport/githubauth/rest"
	"sallyport/githubauth/scope"
)

// An installation is the App's in one account.
type installation struct {
	ID      int64 `json:"id"`
	Account struct {
		Login string `json:"login"`
	} `json:"account"`
	Permissions scope.Permissions `json:"permissions"`
	SuspendedAt *time.Time        `json:"suspended_at"`
}

// installation is the App's for owner: the one that is known, else the one that GitHub
// knows.
func (a *App) installation(ctx context.Context, op, owner string) (installation, error) {
	a.mu.Lock()
	known, ok := a.installations[strings.ToLower(owner)]
	a.mu.Unlock()
	if ok {
		return known, nil
	}
	return a.renewInstallation(ctx, op, owner)
}

// renewInstallation asks GitHub for the App's installation for owner and remembers it.
// That there is none is not remembered: somebody may be about to install it.
func (a *App) renewInstallation(ctx context.Context, op, owner string) (installation, error) {
	found, err := a.findInstallation(ctx, op, owner)
	if err != nil {
		return installation{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.installations[strings.ToLower(owner)] = found
	return found, nil
}

func (a *App) findInstallation(ctx context.Context, op, owner string) (installation, error) {
	// The first path serves users and, on github.com, organizations, too.
	got, err := a.do(ctx, rest.Call{Op: op, Method: http.MethodGet, Path: "users/" + owner + "/installation"})
	if rest.Absent(err) {
		got, err = a.do(ctx, rest.Call{Op: op, Method: http.MethodGet, Path: "orgs/" + owner + "/installation"})
	}
	if e, ok := errors.AsType[*rest.Error](err); ok && rest.Absent(err) {
		return installation{}, &rest.Error{Op: op, Status: http.StatusNotFound, Reason: rest.ReasonNotInstalled,
			Problem: fmt.Sprintf("App %d is not installed for %s%s: install it there, or name the owner rightly", a.id, owner, e.Says)}
	}
	if err != nil {
		return installation{}, err
	}
	var found installation
	if err := rest.Decode(op, got.Body, &found); err != nil {
		return installation{}, err
	}
	switch {
	case found.ID <= 0 || found.Account.Login == "":
		return installation{}, rest.Malformed(op, "GitHub's answer names no installation: is the address of its API right?")
	case !strings.EqualFold(found.Account.Login, owner):
		return installation{}, &rest.Error{Op: op, Reason: rest.ReasonNotInstalled,
			Problem: owner + " is called " + plain.Line(found.Account.Login) + " now: name it so"}
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

func suspended(op, owner string) *rest.Error {
	return &rest.Error{Op: op, Reason: rest.ReasonNotPermitted,
		Problem: "the App's installation for " + owner + " is suspended: an administrator there can lift that"}
}

// lacks says which permission of a grant's profile the installation does not have,
// "" where it has them all.
func (in installation) lacks(g scope.Grant) string {
	wide, ok := errors.AsType[*scope.WiderError](g.Profile.Permissions.Within(in.Permissions))
	if !ok {
		return ""
	}
	return fmt.Sprintf("the App's installation for %s does not have %s: %s, which profile %q needs: "+
		"add it in the App's settings and accept it for %s", g.Owner, wide.Permission, wide.Level, g.Profile.Name, g.Owner)
}

// Outside returns those of a grant's repositories that the App cannot act on,
// because it is not installed there or the installation does not include them. That
// the installation is suspended, or does not have what the profile needs, is an
// error, which is an *Error.
func (a *App) Outside(ctx context.Context, g scope.Grant) ([]string, error) {
	op := "look for the App's installation for " + plain.Line(g.Owner)
	if err := g.Check(); err != nil {
		return nil, &rest.Error{Op: op, Reason: rest.ReasonInvalidGrant, Problem: err.Error(), Cause: err}
	}
	ctx, cancel := context.WithTimeout(ctx, rest.Timeout)
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
			return nil, &rest.Error{Op: op, Reason: rest.ReasonNotPermitted, Problem: problem}
		}
	}
	return outside, nil
}

// installationOf finds the installation that a repository is in, the zero one where
// there is none.
func (a *App) installationOf(ctx context.Context, op, owner, repository string) (installation, error) {
	got, err := a.do(ctx, rest.Call{Op: op, Method: http.MethodGet, Path: "repos/" + owner + "/" + repository + "/installation"})
	if rest.Absent(err) || rest.Status(err) == http.StatusMovedPermanently { // it has another name now
		return installation{}, nil
	}
	if err != nil {
		return installation{}, err
	}
	var found installation
	err = rest.Decode(op, got.Body, &found)
	return found, err
}
