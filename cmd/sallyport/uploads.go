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

// An upload is a known place that takes uploads from anyone.
type upload struct {
	host, what string
	// suffix says that not host but what is under it belongs to anybody: a name there
	// that an entry gives whole is probably the operator's own.
	suffix bool
}

// uploads are all that are known: the registries, and what the firewall and the
// patches to allowlists know of such hosts.
func uploads() iter.Seq[upload] {
	return func(yield func(upload) bool) {
		for _, r := range registries {
			if !yield(upload{host: r.host, what: r.what}) {
				return
			}
		}
		for host, what := range patch.Ways() {
			if !yield(upload{host: host, what: what}) {
				return
			}
		}
		for host, what := range firewall.UserContentHosts() {
			if !yield(upload{host, what, true}) {
				return
			}
		}
	}
}

// reached finds out whether a policy lets TLS through to an upload's host, to names
// under it or, for a suffix, to any name under it; and gives the first such name.
func reached(policy *firewall.Policy, u upload) (string, firewall.Decision) {
	if u.suffix {
		// A label that no file holds stands for the rest.
		if d := decide(policy, "sallyport-any-other."+u.host); d.Allowed() {
			return "." + u.host, d
		}
		return "", firewall.Decision{}
	}
	candidates := []string{u.host}
	for _, a := range policy.Allowed() {
		if under := strings.TrimPrefix(a.Host, "."); strings.HasSuffix(under, "."+u.host) {
			candidates = append(candidates, under)
		}
	}
	for _, candidate := range candidates {
		if d := decide(policy, candidate); d.Allowed() {
			return candidate, d
		}
	}
	return "", firewall.Decision{}
}

func decide(policy *firewall.Policy, host string) firewall.Decision {
	name, err := firewall.ParseName(host)
	if err != nil {
		return firewall.Decision{}
	}
	return policy.Decide(name, firewall.DefaultPort)
}
