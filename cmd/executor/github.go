package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"sallyport/executor/api"
	"sallyport/executor/dispatch"
	"sallyport/executor/plan"
	"sallyport/githubauth"
	"sallyport/githubauth/scope"
)

// gitHubSettings say how runs get at GitHub; without an App and a token they do
// not.
type gitHubSettings struct {
	// AppID and AppKeyFile are those of the App that mints a token for each run.
	AppID      int64  `env:"GITHUB_APP_ID"`
	AppKeyFile string `env:"GITHUB_APP_KEY_FILE"`
	APIURL     string `env:"GITHUB_API_URL" envDefault:"https://api.github.com/"`
	// Profiles is a file with profiles of the operator's own and the ceiling.
	Profiles string `env:"GITHUB_PROFILES"`
	// AllowAppKey lets the App's private key into the sandbox of a run whose profile
	// allows it and that asks for it.
	AllowAppKey bool `env:"GITHUB_ALLOW_APP_KEY" envDefault:"false"`
	// TokenFile holds a token that is given to every run as it is; it must be allowed,
	// too, since nothing narrows it.
	TokenFile        string `env:"GITHUB_TOKEN_FILE"`
	AllowStaticToken bool   `env:"GITHUB_ALLOW_STATIC_TOKEN" envDefault:"false"`
}

// check says which settings contradict each other.
func (g gitHubSettings) check() error {
	app, token := g.AppID != 0 || g.AppKeyFile != "", g.TokenFile != ""
	switch {
	case app && (g.AppID <= 0 || g.AppKeyFile == ""):
		return errors.New("SALLYPORT_GITHUB_APP_ID and SALLYPORT_GITHUB_APP_KEY_FILE must both be set: a GitHub App's number and the file with its private key")
	case app && token:
		return errors.New("SALLYPORT_GITHUB_TOKEN_FILE is set beside SALLYPORT_GITHUB_APP_ID; runs get their tokens from one of them")
	case token && !g.AllowStaticToken:
		return errors.New("SALLYPORT_GITHUB_TOKEN_FILE needs SALLYPORT_GITHUB_ALLOW_STATIC_TOKEN=true: nothing narrows such a token to what a run may do, and no run's end revokes it")
	case g.AllowAppKey && !app:
		return errors.New("SALLYPORT_GITHUB_ALLOW_APP_KEY is set, but no App")
	}
	return nil
}

// setUpGitHub puts the access to GitHub together; both are nil where there is none.
func setUpGitHub(s settings, log *slog.Logger) (*dispatch.GitHubAccess, *plan.GitHubService, error) {
	g := s.GitHub
	if err := g.check(); err != nil {
		return nil, nil, fmt.Errorf("settings: %w", err)
	}
	if g.AppID == 0 && g.TokenFile == "" {
		return nil, nil, nil
	}
	profiles, err := g.loadProfiles(log)
	if err != nil {
		return nil, nil, err
	}
	roots, err := roots(s.ExtraCA)
	if err != nil {
		return nil, nil, err
	}
	service := &plan.GitHubService{Profiles: profiles, AllowKey: g.AllowAppKey}
	if g.TokenFile != "" {
		static, err := githubauth.NewStatic(githubauth.StaticConfig{TokenFile: g.TokenFile, APIBaseURL: g.APIURL, Roots: roots})
		if err != nil {
			return nil, nil, err
		}
		if static.Warning != "" {
			log.Warn("about the static GitHub token", "finding", static.Warning)
		}
		log.Warn("runs get a static GitHub token, which nothing narrows to what they may do", "file", g.TokenFile)
		return &dispatch.GitHubAccess{Issuer: static, Host: static.Hosts().Git, APIURL: g.APIURL, Source: api.SourceStatic}, service, nil
	}
	key, err := githubauth.LoadKey(g.AppKeyFile)
	if err != nil {
		return nil, nil, err
	}
	if key.Warning != "" {
		log.Warn("about the GitHub App's private key", "finding", key.Warning)
	}
	app, err := githubauth.NewApp(githubauth.Config{AppID: g.AppID, Signer: key, APIBaseURL: g.APIURL, Roots: roots, Log: log})
	if err != nil {
		return nil, nil, err
	}
	access := &dispatch.GitHubAccess{Issuer: app, Host: app.Hosts().Git, APIURL: g.APIURL, Source: api.SourceApp}
	if g.AllowAppKey {
		access.Key = func() ([]byte, error) { return githubauth.ReadPEM(g.AppKeyFile) }
	}
	return access, service, nil
}

// checkApp asks GitHub once for the App, so that its operator reads of a number or a
// key that is not right before a run fails for it. It ends with ctx.
func checkApp(ctx context.Context, access *dispatch.GitHubAccess, log *slog.Logger) {
	if access == nil {
		return
	}
	app, ok := access.Issuer.(*githubauth.App)
	if !ok {
		return
	}
	switch slug, err := app.Slug(ctx); {
	case err == nil:
		log.Info("GitHub takes the App's key", "app", slug)
	case ctx.Err() == nil:
		log.Warn("runs get no GitHub tokens as it is", "error", err)
	}
}

// revokeLeft is what an executor can do without an engine for runs that are over.
func revokeLeft(s settings, log *slog.Logger) error {
	access, _, err := setUpGitHub(s, log)
	if err != nil {
		return err
	}
	return dispatch.RevokeLeft(s.State, access, log)
}

func (g gitHubSettings) loadProfiles(log *slog.Logger) (*scope.Profiles, error) {
	if g.Profiles == "" {
		return scope.DefaultProfiles(), nil
	}
	profiles, err := scope.Load(g.Profiles)
	if err != nil {
		return nil, err
	}
	for _, f := range profiles.Lint() {
		log.Warn("about the GitHub profiles", "file", g.Profiles, "finding", f.String())
	}
	return profiles, nil
}

// roots are the system's CAs and the operator's extra ones, which sandboxes trust
// as well: whoever inspects TLS does so here, too.
func roots(extra string) (*x509.CertPool, error) {
	if extra == "" {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's CA certificates: %w", err)
	}
	text, err := os.ReadFile(extra)
	if err != nil {
		return nil, fmt.Errorf("read the extra CA certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", extra)
	}
	return pool, nil
}
