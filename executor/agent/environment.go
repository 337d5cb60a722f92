package agent

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"sallyport/entrypoint/github"
	"sallyport/entrypoint/wire"
	"sallyport/firewall"
)

// Where an agent works and lives; every backend mounts these.
const (
	workspaceDir = "/workspace"
	homeDir      = "/home/agent"
)

// caVariables are what the clients in a sandbox read the path of a CA bundle from: node, Go and OpenSSL,
// curl, git, python's requests, pip, the AWS SDKs.
var caVariables = []string{
	"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
	"REQUESTS_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE",
}

// environment is the whole environment of an agent, in order; extra is what one
// adapter adds. No other place adds to it: what is not here does not reach a sandbox.
func environment(in Input, extra map[string]string) []string {
	env := map[string]string{
		"PATH":    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME":    homeDir,
		"USER":    "agent",
		"LOGNAME": "agent",
		"SHELL":   "/bin/bash",
		"LANG":    "C.UTF-8",
		"LC_ALL":  "C.UTF-8",
		"TERM":    "dumb",
		"TMPDIR":  "/tmp",

		"GIT_AUTHOR_NAME":     "sallyport agent",
		"GIT_AUTHOR_EMAIL":    "agent@sallyport.invalid",
		"GIT_COMMITTER_NAME":  "sallyport agent",
		"GIT_COMMITTER_EMAIL": "agent@sallyport.invalid",
		"GIT_TERMINAL_PROMPT": "0",

		// The empty value tells agents that look for the App's key that there is none.
		"GITHUB_APP_PRIVATE_KEY_PATH": "",
		// Without it npm asks its registry for a newer npm now and then.
		"npm_config_update_notifier": "false",
		// A refused name stays refused: npm would try it again for 70 s, pip for 8.
		"npm_config_fetch_retry_mintimeout": "500", // ms
		"npm_config_fetch_retry_maxtimeout": "2000",
		"PIP_RETRIES":                       "1",
	}
	for _, s := range in.Secrets {
		env[s.Variable] = s.Value
		if s.File {
			env[s.Variable] = s.path()
		}
	}
	if len(in.ExtraCA) > 0 {
		for _, name := range caVariables {
			env[name] = wire.CABundlePath
		}
	}
	if g := in.GitHub; g != nil {
		maps.Copy(env, github.Environment(g.Access, g.Token, len(g.Key) > 0, g.Identity))
		env["PATH"] = wire.ShimDir + ":" + env["PATH"]
	}
	maps.Copy(env, extra)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// aboutNetwork ends every AGENTS.md: an agent that knows why a host is refused
// tries nothing else and says what it needs.
const aboutNetwork = "This sandbox reaches the network only through a gate, which refuses at once every host that its policy does not allow.\n" +
	"`curl http://" + firewall.PageHost + "/` says what is allowed and what was refused, and " +
	"`curl 'http://" + firewall.PageHost + "/why?host=NAME&port=443'` why, and what to ask the operator for.\n"

// job is what the jobs of all agents have in common. contextPath is where the
// agent reads AGENTS.md; it lies in its home, so a workspace's own is left alone.
func job(in Input, argv []string, contextPath string, extra map[string]string) wire.Job {
	j := wire.Job{
		Argv:    argv,
		Env:     environment(in, extra),
		Dir:     workspaceDir,
		ExtraCA: in.ExtraCA,
	}
	text := aboutNetwork
	if in.Context != "" {
		text = in.Context + "\n" + aboutNetwork
	}
	if in.GitHub != nil {
		text += "\n" + aboutGitHub(*in.GitHub)
	}
	j.Files = []wire.File{{Path: contextPath, Mode: 0o644, Content: []byte(text)}}
	addGitHub(&j, in)
	addSkills(&j, in.Skills, skillsDir)
	addSecrets(&j, in.Secrets)
	return j
}

// Where agents look for skills in their home. The first is where pi and what is built on it,
// codex and opencode do; the other one is where claude does, and nowhere else.
const (
	skillsDir       = homeDir + "/.agents/skills"
	claudeSkillsDir = homeDir + "/.claude/skills"
)

// addSkills gives a job copies of the caller's skills: what the agent does to them stays in its sandbox.
func addSkills(j *wire.Job, skills []Skill, dir string) {
	for _, s := range skills {
		for _, f := range s.Files {
			mode := uint32(0o444)
			if f.Executable {
				mode = 0o555
			}
			j.Files = append(j.Files, wire.File{Path: path.Join(dir, s.Name, f.Path), Mode: mode, Content: f.Content})
		}
	}
}

// aboutGitHub says what the agent may do: one that knows that a push is refused
// does not try ten ways to push.
func aboutGitHub(g GitHub) string {
	var repositories []string
	for _, r := range g.Access.Repositories {
		repositories = append(repositories, g.Access.Owner+"/"+r)
	}
	return fmt.Sprintf("git and the REST API of %s are open to this run with the profile %q, for %s and nothing else.\n"+
		"git has its credential by itself, gh as well; the token in GITHUB_TOKEN may be replaced during the run, "+
		"and the valid one is always in %s.\n", g.Access.Host, g.Profile, strings.Join(repositories, ", "), github.TokenPath)
}

// addGitHub gives a job what git and gh in it go by.
func addGitHub(j *wire.Job, in Input) {
	if g := in.GitHub; g != nil {
		j.Files = append(j.Files, github.Files(g.Access, g.Token, g.Key)...)
		j.Shims = github.Shims()
	}
}

// entrypointPath is where every image has the entrypoint.
const entrypointPath = "/sallyport/entrypoint"

// Checkout is the job that fills the workspace before the agent's; its standard
// input is a JSON github.CheckoutSpec. It gets no key but GitHub's token.
func Checkout(in Input) wire.Job {
	in.Secrets = nil
	if in.GitHub != nil {
		access := *in.GitHub
		access.Key = nil
		in.GitHub = &access
	}
	j := wire.Job{
		Argv:    []string{entrypointPath, "checkout"},
		Env:     environment(in, nil),
		Dir:     workspaceDir,
		ExtraCA: in.ExtraCA,
	}
	addGitHub(&j, in)
	return j
}

// addSecrets gives a job the files of secrets.
func addSecrets(j *wire.Job, secrets []Secret) {
	for _, s := range secrets {
		if s.File {
			j.Files = append(j.Files, wire.File{Path: s.path(), Mode: 0o400, Content: []byte(s.Value)})
		}
	}
}

// path is where the file of a secret lies: in memory, and nobody else's.
func (s Secret) path() string { return "/run/sallyport/secrets/" + s.Name }

// Clash returns a secret of a run whose variable the run has already, nil for none.
func Clash(p Program, in Input) *Secret {
	given := in.Secrets
	in.Secrets = nil
	taken := map[string]bool{}
	for _, variable := range p.Command(in).Env {
		name, _, _ := strings.Cut(variable, "=")
		taken[name] = true
	}
	for i, s := range given {
		if taken[s.Variable] {
			return &given[i]
		}
		taken[s.Variable] = true
	}
	return nil
}
