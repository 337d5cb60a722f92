package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/executor/plan"
	"sallyport/githubauth"
	"sallyport/githubauth/rest"
	"sallyport/githubauth/scope"
)

// checkRun holds the request in the file to policies, profiles and installation.
func (c *gitHubCheck) checkRun(ctx context.Context) error {
	request, err := c.readRequest()
	if err != nil {
		return err
	}
	service := plan.GitHubService{Profiles: c.profiles}
	if value := c.getenv(allowKeyVariable); value != "" {
		if service.AllowKey, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("%s: %.64q is neither true nor false", allowKeyVariable, value)
		}
	}
	judged, problem := plan.Preview(request, c.policies.Names(), &service)
	if problem != nil {
		return c.refused(problem, request, service)
	}
	if judged.GitHub == nil {
		fmt.Fprintf(c.stdout, "%s asks for no access to GitHub\n", terminal.Safe(c.run))
		return nil
	}
	grant := judged.GitHub.Grant
	c.pair(judged.Policy, []string{grant.Profile.Name})
	return c.installed(ctx, grant)
}

// The executor's settings that are read here, too.
const (
	appVariable      = "SALLYPORT_GITHUB_APP_ID"
	keyVariable      = "SALLYPORT_GITHUB_APP_KEY_FILE"
	allowKeyVariable = "SALLYPORT_GITHUB_ALLOW_APP_KEY"

	noApp = appVariable + " and " + keyVariable + " are not set"
)

// refused prints what the executor would say to the request, and which setting of
// its is not known here.
func (c *gitHubCheck) refused(problem *api.Problem, request api.Request, service plan.GitHubService) error {
	field, _ := problem.Details["field"].(string)
	text := problem.Detail
	if strings.HasPrefix(text, field) {
		field = ""
	}
	if a := request.Opts.GithubAccess; a != nil && a.AllowMcpAppAuth && !service.AllowKey && problem.Code == api.CodeCapability {
		if p, ok := c.profiles.Get(a.Profile); ok && p.AllowMcpAppAuth {
			text += " (" + allowKeyVariable + " is not true here)"
		}
	}
	return c.fault(field, "%s", text)
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
	fmt.Fprintln(c.stderr, terminal.Safe(text+fmt.Sprintf(format, args...)))
	return &exitError{code: exitFailed}
}

// installed asks GitHub whether the App may act on the repositories of a grant,
// where the App's settings are there.
func (c *gitHubCheck) installed(ctx context.Context, g scope.Grant) error {
	asked := g.Owner + "/" + strings.Join(g.Repositories, ", "+g.Owner+"/")
	app, err := c.gitHubApp()
	if err != nil {
		return err
	}
	if app == nil {
		fmt.Fprintf(c.stdout, "%s: whether the App is installed for %s was not looked up: %s\n",
			terminal.Safe(c.run), asked, noApp)
		return nil
	}
	outside, err := app.Outside(ctx, g)
	if e, ok := errors.AsType[*rest.Error](err); ok && e.Reason == rest.ReasonNotPermitted && e.Status == 0 {
		return c.fault("opts.githubAccess", "%s", e.Problem)
	}
	if err != nil {
		return err
	}
	if len(outside) > 0 {
		return c.fault("opts.githubAccess", "the App's installation does not include %s/%s: add it there, or leave it out here",
			g.Owner, strings.Join(outside, ", "+g.Owner+"/"))
	}
	fmt.Fprintf(c.stdout, "%s: the App is installed for %s\n", terminal.Safe(c.run), asked)
	return nil
}

// gitHubApp is the App of the executor's settings, nil where there are none.
func (c *gitHubCheck) gitHubApp() (*githubauth.App, error) {
	number, file := c.getenv(appVariable), c.getenv(keyVariable)
	if number == "" || file == "" {
		return nil, nil
	}
	id, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: %.64q is no number", appVariable, number)
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
