package main

import (
	"iter"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/patch"
)

// registries are hosts of package registries to which whoever has an account there
// can upload, and with which a policy that lets agents install packages often
// allows that as well.
var registries = []struct{ host, what, source string }{
	{"registry.npmjs.org", "whoever has an account can publish packages there; installing needs it, too",
		"https://docs.npmjs.com/cli/commands/npm-publish"},
	{"upload.pypi.org", "whoever has an account can publish packages there; installing does not need it",
		"https://packaging.python.org/en/latest/specifications/pypirc/"},
	{"crates.io", "whoever has an account can publish crates there; installing needs only the hosts under it",
		"https://doc.rust-lang.org/cargo/reference/registry-web-api.html"},
	{"rubygems.org", "whoever has an account can publish gems there; installing needs it, too",
		"https://guides.rubygems.org/rubygems-org-api/"},
	{"ghcr.io", "whoever has a GitHub account can push images there; pulling them needs it, too",
		"https://docs.github.com/en/packages/working-with-a-github-packages-registry/working-with-the-container-registry"},
	{"registry-1.docker.io", "whoever has an account can push images there; pulling them needs it, too",
		"https://distribution.github.io/distribution/spec/api/"},
}

// uploads are the known hosts that take uploads from anyone, with what they are:
// the registries, and what the firewall knows of such hosts.
func uploads() iter.Seq2[string, string] {
	return func(yield func(host, what string) bool) {
		for _, r := range registries {
			if !yield(r.host, r.what) {
				return
			}
		}
		for host, what := range patch.Ways() {
			if !yield(host, what) {
				return
			}
		}
	}
}

// reached finds out whether a policy lets TLS through to host or, where only those
// are allowed, to names under it, and returns the first such name.
func reached(policy *firewall.Policy, host string) (string, firewall.Decision) {
	candidates := []string{host}
	for _, a := range policy.Allowed() {
		if under := strings.TrimPrefix(a.Host, "."); strings.HasSuffix(under, "."+host) {
			candidates = append(candidates, under)
		}
	}
	for _, candidate := range candidates {
		name, err := firewall.ParseName(candidate)
		if err != nil {
			continue
		}
		if d := policy.Decide(name, firewall.DefaultPort); d.Allowed() {
			return candidate, d
		}
	}
	return "", firewall.Decision{}
}
