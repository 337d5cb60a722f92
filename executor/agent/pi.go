package agent

import (
	"strings"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
)

// Pi runs pi, the npm package @earendil-works/pi-coding-agent, in its print mode.
//
// What it does was tried with 1.5.2. It reads the prompt from standard input and
// AGENTS.md from ~/.pi/agent beside those of the working directory and its parents; it writes
// only below ~/.pi/agent and dials only the model's provider. It ends with 0
// even where the provider refused, with 1 where it could not start, with 143
// after SIGTERM. A model that it does not know it takes for a new one.
type Pi struct{}

const piName = "pi"

// piContext is where pi, and what is built on it, reads AGENTS.md in its home.
const piContext = homeDir + "/.pi/agent/AGENTS.md"

// Check implements Program.
func (Pi) Check(in Input) *api.Problem {
	if in.Config.WebSearch {
		return withoutTool("config.webSearch", "webSearch", "config.webSearch is set, but pi has no tool for it; agentic-pi has")
	}
	return checkReasoner(in, piName, Models())
}

// Command implements Program.
func (Pi) Command(in Input) wire.Job {
	provider, model, _ := strings.Cut(in.Config.Model, "/")
	argv := []string{
		"pi", "--print", "--mode", "json",
		"--no-session", // ours is the session log
		"--offline",    // no look for a newer pi, no catalogs
		// What a repository brings in .pi, extensions above all, is not for this agent to run, and
		// its built-in ones look for servers of the user's.
		"--no-approve", "--no-extensions",
		// Given apart, the provider is never guessed.
		"--provider", provider, "--model", model,
	}
	if v := in.Config.Variant; v != "" {
		argv = append(argv, "--thinking", v)
	}
	return job(in, argv, piContext, map[string]string{
		// The same for a pi that the agent starts itself.
		"PI_OFFLINE":            "1",
		"PI_SKIP_VERSION_CHECK": "1",
		"PI_TELEMETRY":          "0",
	})
}

// NewParser implements Program.
func (Pi) NewParser(in Input) Parser { return newStream(piName, in) }
