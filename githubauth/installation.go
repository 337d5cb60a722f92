package githubauth

import (
	"context"
	"errors"
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
	if status(err) == http.StatusNotFound {
		got, err = a.do(ctx, call{op: op, method: http.MethodGet, path: "orgs/" + owner + "/installation"})
	}
	if status(err) == http.StatusNotFound {
		return installation{}, &Error{Op: op, Status: http.StatusNotFound, Reason: ReasonNotInstalled,
			Problem: "the App is not installed for " + owner + ": install it there, or name the owner rightly"}
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
		return installation{}, &Error{Op: op, Reason: ReasonNotPermitted,
			Problem: "the App's installation for " + owner + " is suspended: an administrator there can lift that"}
	}
	return found, nil
}

// status is the HTTP status of a refusal, 0 where there is none.
func status(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// Outside returns those of an owner's repositories that the App cannot act on,
// because it is not installed there or the installation does not include them.
func (a *App) Outside(ctx context.Context, owner string, repositories []string) ([]string, error) {
	op := "look for the App's installation for " + clean(owner)
	if !ownerForm.MatchString(owner) {
		return nil, &Error{Op: op, Reason: ReasonInvalidGrant, Problem: "that is not the name of a GitHub user or organization"}
	}
	if err := checkRepositories(repositories); err != nil {
		return nil, &Error{Op: op, Reason: ReasonInvalidGrant, Problem: err.Error()}
	}
	ctx, cancel := context.WithTimeout(ctx, overallTimeout)
	defer cancel()
	var outside []string
	for _, name := range repositories {
		got, err := a.do(ctx, call{op: op, method: http.MethodGet, path: "repos/" + owner + "/" + name + "/installation"})
		switch status(err) {
		case http.StatusNotFound, http.StatusMovedPermanently: // moved: it has another name now
			outside = append(outside, name)
			continue
		}
		if err != nil {
			return nil, err
		}
		var found installation
		if err := decode(op, got.body, &found); err != nil {
			return nil, err
		}
		if found.ID <= 0 || !strings.EqualFold(found.Account.Login, owner) {
			outside = append(outside, name)
		}
	}
	return outside, nil
}
