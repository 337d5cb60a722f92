package agent

import (
	"maps"
	"slices"

	"sallyport/entrypoint"
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
	}
	for _, name := range ProviderKeys() {
		if v := in.Keys[name]; v != "" {
			env[name] = v
		}
	}
	if _, name := search(in); name != "" {
		env[name] = in.Keys[name]
	}
	if len(in.ExtraCA) > 0 {
		for _, name := range caVariables {
			env[name] = entrypoint.CABundlePath
		}
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
func job(in Input, argv []string, contextPath string, extra map[string]string) entrypoint.Job {
	j := entrypoint.Job{
		Argv:    argv,
		Env:     environment(in, extra),
		Dir:     workspaceDir,
		ExtraCA: in.ExtraCA,
	}
	text := aboutNetwork
	if in.Context != "" {
		text = in.Context + "\n" + aboutNetwork
	}
	j.Files = []entrypoint.File{{Path: contextPath, Mode: 0o644, Content: []byte(text)}}
	return j
}
