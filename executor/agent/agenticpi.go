package agent

import (
	"slices"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
)

// AgenticPi runs agentic-pi, a program on top of pi that adds tools for GitHub and
// web search, with its own sandbox off. Exit codes: 0 ok, 1 fatal, 2 usage,
// empty prompt, or sandbox failure. Its models are those of the pi that it was
// built with, so only their provider is checked.
type AgenticPi struct{}

const agenticPiName = "agentic-pi"

var agenticProfiles = []string{"read", "issues-write", "review-write", "repo-write"}

// Check implements Program.
func (AgenticPi) Check(in Input) *api.Problem { return checkReasoner(in, agenticPiName, nil) }

// Command implements Program.
func (AgenticPi) Command(in Input) wire.Job {
	argv := []string{"agentic-pi", "run", "--model", in.Config.Model, "--sandbox", "none"}
	if v := in.Config.Variant; v != "" {
		argv = append(argv, "--thinking", v)
	}
	// Without either flag any search key in the environment turns the tool on.
	if name, _ := search(in); name != "" {
		argv = append(argv, "--web-search-provider", name)
	} else {
		argv = append(argv, "--no-web-search")
	}
	// It knows the profiles of the original contract alone, and gates its own tools by
	// them; what a token can do does not depend on it.
	if g := in.GitHub; g != nil && slices.Contains(agenticProfiles, g.Profile) {
		argv = append(argv, "--profile", g.Profile)
	}
	return job(in, argv, piContext, nil)
}

// NewParser implements Program.
func (AgenticPi) NewParser(in Input) Parser { return newStream(agenticPiName, in) }
