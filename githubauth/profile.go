package githubauth

import "maps"

// A Profile names what a run may do on GitHub.
type Profile struct {
	Name        string
	Description string
	Permissions Permissions
	// AllowMcpAppAuth says that a run with this profile may ask for the App's
	// private key itself. It gets it only where the service allows that, too.
	AllowMcpAppAuth bool
}

func (p Profile) clone() Profile {
	p.Permissions = maps.Clone(p.Permissions)
	return p
}

// Builtin returns the profiles that are always there, the narrowest first.
func Builtin() []Profile {
	return []Profile{
		{
			Name:        "read",
			Description: "reads code, issues and pull requests",
			Permissions: Permissions{"contents": Read, "issues": Read, "pull_requests": Read, "metadata": Read},
		},
		{
			Name:        "issues-write",
			Description: "reads code and pull requests, opens and answers issues",
			Permissions: Permissions{"contents": Read, "issues": Write, "pull_requests": Read, "metadata": Read},
		},
		{
			Name:        "review-write",
			Description: "reads code, answers issues, reviews pull requests",
			Permissions: Permissions{"contents": Read, "issues": Write, "pull_requests": Write, "metadata": Read},
		},
		{
			Name:            "repo-write",
			Description:     "pushes code, opens issues and pull requests; may ask for the App's private key",
			Permissions:     Permissions{"contents": Write, "issues": Write, "pull_requests": Write, "metadata": Read},
			AllowMcpAppAuth: true,
		},
	}
}

// builtinCeiling is the ceiling where the operator sets none.
func builtinCeiling() Permissions {
	ceiling := Permissions{}
	for _, p := range Builtin() {
		ceiling.union(p.Permissions)
	}
	return ceiling
}
