package hosts

// Registries are hosts of package registries to which whoever has an account there
// can upload, and with which a policy that lets agents install packages often
// allows that as well.
var Registries = newList([]Row{
	Row{"registry.npmjs.org", "whoever has an account can publish packages there; installing needs it, too",
		"https://docs.npmjs.com/cli/commands/npm-publish"},
	Row{"upload.pypi.org", "whoever has an account can publish packages there; installing does not need it",
		"https://packaging.python.org/en/latest/specifications/pypirc/"},
	Row{"crates.io", "whoever has an account can publish crates there; installing needs only the hosts under it",
		"https://doc.rust-lang.org/cargo/reference/registry-web-api.html"},
	Row{"rubygems.org", "whoever has an account can publish gems there; installing needs it, too",
		"https://guides.rubygems.org/rubygems-org-api/"},
	Row{"ghcr.io", "whoever has a GitHub account can push images there; pulling them needs it, too",
		"https://docs.github.com/en/packages/working-with-a-github-packages-registry/working-with-the-container-registry"},
	Row{"registry-1.docker.io", "whoever has an account can push images there; pulling them needs it, too",
		"https://distribution.github.io/distribution/spec/api/"},
})
