// Package github is what a sandbox has where its run may use GitHub: a credential
// helper for git, a front for gh, and the checkout of the workspace before the
// agent starts. The executor puts in what Files and Environment return; inside,
// the entrypoint does what the name says that it is called by.
//
// The token lies in one file on tmpfs, which the executor replaces before it
// expires, so git and gh always use the one that is valid. Nothing here keeps
// the token from the agent, which is its rightful user: what the agent cannot do
// is decided by GitHub, from the token's permissions. The helper's answer for one
// host and for listed repositories keeps the token from going where it does not belong by
// accident, a submodule or a redirect.
package github

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"sallyport/entrypoint/wire"
)

// Paths inside a sandbox, all on tmpfs.
const (
	// TokenPath holds the token and nothing else, mode 0600.
	TokenPath = "/run/sallyport/github/token"
	// KeyPath holds the App's private key, mode 0400, in the one case where it may
	// enter a sandbox.
	KeyPath    = "/run/sallyport/github/app.pem"
	accessPath = "/run/sallyport/github/access.json"
	configPath = "/run/sallyport/github/gitconfig"
)

// The names by which the entrypoint is called as git's helper and as gh.
const (
	CredentialShim = "git-credential-sallyport"
	GhShim         = "gh"
)

// user is what GitHub calls the user of an installation's token.
const user = "x-access-token"

// publicHost is GitHub itself; under residencyHosts are those of GitHub Enterprise
// Cloud with data residency. Every other host is an Enterprise Server.
const (
	publicHost     = "github.com"
	residencyHosts = ".ghe.com"
)

// Access is what the token of a run is for.
type Access struct {
	Host string `json:"host"` // of git, such as github.com
	// APIURL is the base of the REST API, such as https://api.github.com/.
	APIURL string `json:"apiUrl"`
	Owner  string `json:"owner"`
	// Repositories are names without the owner.
	Repositories []string `json:"repositories"`
}

// Identity is who commits; the zero Identity leaves that as it is.
type Identity struct{ Name, Email string }

// Shims are the names that PID 1 must link to itself (wire.Job.Shims).
func Shims() []string { return []string{CredentialShim, GhShim} }

// TokenFile is the file of the token, which the next token replaces.
func TokenFile(token string) wire.File {
	return wire.File{Path: TokenPath, Mode: 0o600, Content: []byte(token)}
}

// Files are those of a job with access: token, git's configuration and what the
// helper goes by, and the App's key unless it is empty.
func Files(a Access, token string, key []byte) []wire.File {
	access, _ := json.Marshal(a) // strings can always be encoded
	files := []wire.File{
		TokenFile(token),
		{Path: accessPath, Mode: 0o600, Content: access},
		{Path: configPath, Mode: 0o644, Content: []byte(gitConfig(a.Host))},
	}
	if len(key) > 0 {
		files = append(files, wire.File{Path: KeyPath, Mode: 0o400, Content: key})
	}
	return files
}

// gitConfig is the system's configuration of git (git-config(1)): the helper for
// one host, https in place of ssh, and no complaint about who owns a workspace.
func gitConfig(host string) string {
	return strings.NewReplacer("HOST", host, "HELPER", wire.ShimDir+"/"+CredentialShim).Replace(`[include]
	path = /etc/gitconfig
[credential "https://HOST"]
	helper =
	helper = HELPER
	useHttpPath = true
[url "https://HOST/"]
	insteadOf = git@HOST:
	insteadOf = ssh://git@HOST/
	insteadOf = ssh://git@HOST:22/
	insteadOf = git://HOST/
[safe]
	directory = *
`)
}

// Environment are the variables of a job with access: what git, gh and agents
// look for. key says that the App's key is there.
func Environment(a Access, token string, key bool, id Identity) map[string]string {
	env := map[string]string{
		"GITHUB_TOKEN":          token,
		"GH_TOKEN":              token,
		"GIT_TOKEN":             token,
		"GIT_CONFIG_SYSTEM":     configPath,
		"GITHUB_API_URL":        strings.TrimSuffix(a.APIURL, "/"),
		"GITHUB_SERVER_URL":     "https://" + a.Host,
		"GH_PROMPT_DISABLED":    "1",
		"GH_NO_UPDATE_NOTIFIER": "1",

		"GITHUB_APP_PRIVATE_KEY_PATH": "",
	}
	if key {
		env["GITHUB_APP_PRIVATE_KEY_PATH"] = KeyPath
	}
	if id.Name != "" {
		env["GIT_AUTHOR_NAME"], env["GIT_AUTHOR_EMAIL"] = id.Name, id.Email
		env["GIT_COMMITTER_NAME"], env["GIT_COMMITTER_EMAIL"] = id.Name, id.Email
	}
	if a.Host != publicHost {
		env["GH_HOST"] = a.Host
		env["GH_ENTERPRISE_TOKEN"] = token
	}
	return env
}

// enterprise reports whether the access is to an Enterprise Server.
func (a Access) enterprise() bool {
	return a.Host != publicHost && !strings.HasSuffix(a.Host, residencyHosts)
}

// readAccess reads what Files has put in.
func readAccess(name string) (Access, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return Access{}, fmt.Errorf("read the access to GitHub: %w", err)
	}
	var a Access
	if err := json.Unmarshal(data, &a); err != nil {
		return Access{}, fmt.Errorf("read the access to GitHub: %w", err)
	}
	return a, nil
}

// readToken reads the token that is valid now.
func readToken(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", fmt.Errorf("read the token: %s is empty", name)
	}
	return token, nil
}
