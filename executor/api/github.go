package api

import "time"

// GithubAccess is what a run may do on GitHub: the original contract's
// GitSandboxAccess.
type GithubAccess struct {
	// Owner is a user or an organization that has installed the App.
	Owner string `json:"owner"`
	// Repo is the repository that the run is about, without the owner.
	Repo string `json:"repo,omitempty"`
	// Profile names the permissions: read, issues-write, review-write, repo-write, or
	// one of the operator's.
	Profile string `json:"profile"`
	// Repositories are those that the token is for, without the owner; Repo is always
	// among them.
	Repositories []string `json:"repositories,omitempty"`
	// AllowMcpAppAuth asks for the App's private key. Unless profile and service both
	// allow that the request is refused.
	AllowMcpAppAuth bool `json:"allowMcpAppAuth,omitempty"`
	// PrePopulateBranch is a branch of Repo that the sandbox checks out before the
	// agent starts, as far as it can; a new one starts from BaseBranch or the default.
	PrePopulateBranch string `json:"prePopulateBranch,omitempty"`
	BaseBranch        string `json:"baseBranch,omitempty"`
	Shallow           bool   `json:"shallow,omitempty"` // the newest commit only
	RunID             string `json:"runId,omitempty"`   // the caller's own name, for the log
}

// GithubReceipt is the part of a result that says what the run could do on GitHub.
type GithubReceipt struct {
	Profile      string   `json:"profile"`
	Owner        string   `json:"owner"`
	Repositories []string `json:"repositories"`
	// Permissions are those that GitHub gave the token; none are known of one that
	// is not downscoped.
	Permissions map[string]string `json:"permissions,omitempty"`
	Source      string            `json:"source"` // one of the Source constants
	// Downscoped says that the token could do no more than Permissions on
	// Repositories. A static token can do all that it was made for.
	Downscoped bool       `json:"downscoped"`
	ExpiresAt  *time.Time `json:"expiresAt,omitempty"` // of the last token
	Refreshed  int        `json:"refreshed"`           // how often a fresh token took the place of one
	// Revoked says that no token of the run is valid any more. Where it is false
	// RevokeError says why; the executor goes on trying until they expire.
	Revoked     bool   `json:"revoked"`
	RevokeError string `json:"revokeError,omitempty"`
	// AppKey says that the App's private key was in the sandbox.
	AppKey bool `json:"appKey"`
	// Checkout is what came of PrePopulateBranch: one of the Checkout constants, or
	// empty where none was asked for.
	Checkout string `json:"checkout,omitempty"`
	// Commit is what the checkout says it has checked out, 40 hexadecimal digits.
	Commit string `json:"commit,omitempty"`
}

// Where a token comes from.
const (
	SourceApp    = "app"    // minted for the run
	SourceStatic = "static" // the operator's own
)

// What came of a checkout.
const (
	CheckoutDone    = "done"
	CheckoutFailed  = "failed"  // the agent started with an empty workspace
	CheckoutSkipped = "skipped" // the workspace was not empty
)

// GithubCapability is what a request may ask for in githubAccess.
type GithubCapability struct {
	Profiles []string `json:"profiles"`
	Host     string   `json:"host"`   // of git, such as github.com
	Source   string   `json:"source"` // one of the Source constants
	AppKey   bool     `json:"appKey"` // allowMcpAppAuth is allowed, by the service
}
