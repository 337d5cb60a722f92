package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"sallyport/executor/api"
	"sallyport/executor/plan"
	"sallyport/githubauth"
)

// checkRun holds the request in the file to policies, profiles and installation.
func (c *gitHubCheck) checkRun(ctx context.Context) error {
	request, err := c.readRequest()
	if err != nil {
		return err
	}
	access := request.Opts.GithubAccess
	if access == nil {
		fmt.Fprintf(c.stdout, "%s asks for no access to GitHub\n", safe(c.run))
		return nil
	}
	policy := "strict"
	if request.Config.UnrestrictedEgress {
		policy = "open"
	} else if request.Config.Egress != "" {
		policy = request.Config.Egress
	}
	if _, ok := c.policies.Policy(policy); !ok {
		return c.fault("config.egress", "%s has no policy %q; it has %s", c.allow, policy, strings.Join(c.policies.Names(), ", "))
	}
	names := slices.Clone(access.Repositories)
	if access.Repo != "" && !slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, access.Repo) }) {
		names = append([]string{access.Repo}, names...)
	}
	grant, err := c.profiles.NewGrant(access.Profile, access.Owner, names)
	if err != nil {
		return c.fault("opts.githubAccess", "%v", err)
	}
	if access.AllowMcpAppAuth && !grant.Profile.AllowMcpAppAuth {
		return c.fault("opts.githubAccess.allowMcpAppAuth", "the profile %q does not allow the App's private key", access.Profile)
	}
	c.pair(policy, []string{access.Profile})
	return c.installed(ctx, grant)
}

func (c *gitHubCheck) readRequest() (api.Request, error) {
	f, err := os.Open(c.run)
	if err != nil {
		return api.Request{}, fmt.Errorf("read the request of a run: %w", err)
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, plan.MaxRequest))
	if err != nil {
		return api.Request{}, fmt.Errorf("read the request of a run: %w", err)
	}
	request, problem := plan.Decode(body)
	if problem != nil {
		return api.Request{}, c.fault("", "%s", problem.Detail)
	}
	return request, nil
}

// fault prints what is wrong with the request, and ends the check.
func (c *gitHubCheck) fault(field, format string, args ...any) error {
	text := c.run + ": "
	if field != "" {
		text += field + ": "
	}
	fmt.Fprintln(c.stderr, safe(text+fmt.Sprintf(format, args...)))
	return &exitError{code: exitFailed}
}

// installed asks GitHub whether the App may act on the repositories of a grant,
// where the App's settings are there.
func (c *gitHubCheck) installed(ctx context.Context, g githubauth.Grant) error {
	asked := g.Owner + "/" + strings.Join(g.Repositories, ", "+g.Owner+"/")
	app, err := c.gitHubApp()
	if err != nil {
		return err
	}
	if app == nil {
		fmt.Fprintf(c.stdout, "%s: whether the App is installed for %s was not looked up: SALLYPORT_GITHUB_APP_ID and SALLYPORT_GITHUB_APP_KEY_FILE are not set\n",
			safe(c.run), asked)
		return nil
	}
	outside, err := app.Outside(ctx, g.Owner, g.Repositories)
	if err != nil {
		return err
	}
	if len(outside) > 0 {
		return c.fault("opts.githubAccess", "the App's installation does not include %s/%s: add it there, or leave it out here",
			g.Owner, strings.Join(outside, ", "+g.Owner+"/"))
	}
	fmt.Fprintf(c.stdout, "%s: the App is installed for %s\n", safe(c.run), asked)
	return nil
}

// gitHubApp is the App of the executor's settings, nil where there are none.
func (c *gitHubCheck) gitHubApp() (*githubauth.App, error) {
	number, file := c.getenv("SALLYPORT_GITHUB_APP_ID"), c.getenv("SALLYPORT_GITHUB_APP_KEY_FILE")
	if number == "" || file == "" {
		return nil, nil
	}
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("SALLYPORT_GITHUB_APP_ID: %.64q is no number", number)
	}
	key, err := githubauth.LoadKey(file)
	if err != nil {
		return nil, err
	}
	config := githubauth.Config{AppID: id, Signer: key, APIBaseURL: c.getenv("SALLYPORT_GITHUB_API_URL")}
	if extra := c.getenv("SALLYPORT_EXTRA_CA"); extra != "" {
		if config.Roots, err = extraRoots(extra); err != nil {
			return nil, err
		}
	}
	return githubauth.NewApp(config)
}

// extraRoots are the system's CAs and those in a file.
func extraRoots(path string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the system's CA certificates: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the extra CA certificates: %w", err)
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", path)
	}
	return pool, nil
}
