package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/review"
	"sallyport/githubauth"
	"sallyport/githubauth/scope"
)

// gitHubCheck is what "check" looks at of access to GitHub, and finds.
type gitHubCheck struct {
	*app
	file     string // of the profiles; "" for the built-in ones
	run      string // a file with a request, "" for none
	wanted   bool
	allow    string // the allowlist's path
	policies *firewall.Policies
	profiles *scope.Profiles
	hosts    githubauth.Hosts
	said     string // of the App, "" where it was not asked for
	warned   int
}

// gitHub checks profiles, hosts and a request against each other, and reports how
// many warnings it printed.
func (c *gitHubCheck) gitHub(ctx context.Context) (warned int, err error) {
	if c.file == "" {
		c.file = c.getenv("SALLYPORT_GITHUB_PROFILES")
	}
	if !c.wanted && c.file == "" && c.run == "" {
		return 0, nil
	}
	if c.profiles, err = c.loadProfiles(); err != nil {
		return 0, err
	}
	if c.hosts, err = githubauth.ParseHosts(c.getenv("SALLYPORT_GITHUB_API_URL")); err != nil {
		return 0, fmt.Errorf("SALLYPORT_GITHUB_API_URL: %w", err)
	}
	for _, f := range c.profiles.Lint() {
		f.Problem = "warning: " + f.Problem
		c.warn(f)
	}
	if c.run != "" {
		if err := c.checkRun(ctx); err != nil {
			return c.warned, err
		}
		return c.warned, nil
	}
	for _, name := range c.policies.Names() {
		c.pair(name, c.profiles.Names())
	}
	if c.wanted {
		c.said, err = c.askApp(ctx)
	}
	return c.warned, err
}

func (c *gitHubCheck) loadProfiles() (*scope.Profiles, error) {
	if c.file == "" {
		return scope.DefaultProfiles(), nil
	}
	profiles, err := scope.Load(c.file)
	faults, ok := errors.AsType[scope.FileErrors](err)
	if !ok {
		return profiles, err
	}
	for _, fault := range faults {
		fmt.Fprintln(c.stderr, terminal.Safe(fault.Error()))
	}
	return nil, &exitError{code: exitFailed}
}

// askApp says whether GitHub knows the App of the executor's settings and takes its
// key, where they are there.
func (c *gitHubCheck) askApp(ctx context.Context) (string, error) {
	app, err := c.gitHubApp()
	if err != nil {
		return "", err
	}
	if app == nil {
		return "whether GitHub takes the App's key was not looked up: " + noApp, nil
	}
	slug, err := app.Slug(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("GitHub takes the key of the App %s, %s", c.getenv(appVariable), slug), nil
}

func (c *gitHubCheck) warn(w fmt.Stringer) {
	c.warned++
	fmt.Fprintln(c.stderr, terminal.Safe(w.String()))
}

// policyWarning is about a policy, in the form of the allowlist's own faults.
type policyWarning struct{ allowlist.FileError }

func (w policyWarning) String() string { return w.Error() }

func (c *gitHubCheck) about(policy string, line int, format string, args ...any) {
	c.warn(policyWarning{allowlist.FileError{File: c.allow, Line: line, Field: "policies." + policy,
		Problem: "warning: " + fmt.Sprintf(format, args...)}})
}

// pair looks at a policy together with the profiles that runs under it may have.
func (c *gitHubCheck) pair(name string, profiles []string) {
	policy, _ := c.policies.Policy(name)
	var missing []string
	for _, host := range slices.Compact([]string{c.hosts.Git, c.hosts.API}) {
		if !allows(policy, host) {
			missing = append(missing, host)
		}
	}
	if len(missing) > 0 {
		c.about(name, 0, "does not allow %s: no run under it can use a GitHub profile", strings.Join(missing, " and "))
		return
	}
	var writing []string
	for _, profile := range profiles {
		if p, ok := c.profiles.Get(profile); ok && p.Permissions.Writes() {
			writing = append(writing, profile)
		}
	}
	if len(writing) > 0 {
		c.leaks(policy, strings.Join(writing, " or "))
	}
}

// allows reports whether a policy lets a run reach a host, with or without a port.
func allows(policy *firewall.Policy, host string) bool {
	port := uint64(firewall.DefaultPort)
	if h, p, err := net.SplitHostPort(host); err == nil {
		if port, err = strconv.ParseUint(p, 10, 16); err != nil {
			return false
		}
		host = h
	}
	name, err := firewall.ParseName(host)
	return err == nil && policy.Decide(name, uint16(port)).Allowed()
}

// leaks reports the hosts that a policy reaches which take uploads from anyone.
func (c *gitHubCheck) leaks(policy *firewall.Policy, writing string) {
	var open string // one that no entry names
	var line int
	for u := range review.Uploads(policy) {
		d := u.Decision
		if d.Reason == firewall.ReasonOpen {
			open, line = cmp.Or(open, u.Host), d.Line
			continue
		}
		by := strconv.Quote(d.Rule)
		if d.Group != "" {
			by += " of group " + strconv.Quote(d.Group)
		}
		c.about(policy.Name(), d.Line, "with %s an agent could carry out to %s what it reads (%s): %s", writing, u.Host, by, u.What)
	}
	if open != "" {
		c.about(policy.Name(), line, "with %s an agent could carry out what it reads to any host, also to those that take uploads from anyone, such as %s", writing, open)
	}
}

// print lists the profiles that there are.
func (c *gitHubCheck) print() {
	if c.profiles == nil {
		return
	}
	for _, name := range c.profiles.Names() {
		p, _ := c.profiles.Get(name)
		fmt.Fprintf(c.stdout, "profile %s: %s\n", name, p.Permissions)
	}
	for _, off := range c.profiles.SwitchedOff() {
		fmt.Fprintln(c.stdout, terminal.Safe(off.String()))
	}
	if c.said != "" {
		fmt.Fprintln(c.stdout, terminal.Safe(c.said))
	}
	if c.file != "" {
		fmt.Fprintf(c.stdout, "%s is right\n", terminal.Safe(c.file))
	}
}
