// Package agent holds the adapters between the executor and the programs that
// reason: each says how its program is started and turns what it prints into the
// executor's own events, usage and outcome.
package agent

import (
	"sallyport/entrypoint/github"
	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
)

// An Adapter knows one agent.
type Adapter struct {
	Name string // the value of config.agent
	Program
}

// A Program is what an agent is.
type Program interface {
	// Check judges what the agent makes of a request before anything starts: an
	// unknown model, a missing key, a missing argv. A non-nil problem refuses it.
	Check(in Input) *api.Problem
	// Command says how to start the agent: argv, environment, directory, files.
	// The prompt goes in on standard input.
	Command(in Input) wire.Job
	// NewParser makes the parser of one run's output.
	NewParser(in Input) Parser
}

// Input is what an adapter needs to know of a run.
type Input struct {
	Prompt string
	Config api.Config
	// Keys are the variables, such as ANTHROPIC_API_KEY, of the operator's provider and
	// search keys that there are for the run. Search keys count only when it may search.
	Keys map[string]bool
	// Secrets are those that the agent is given, its keys among them. Before the run
	// starts they have no values.
	Secrets []Secret
	// Context is what the caller gives for AGENTS.md, empty for none; a word about
	// the network follows it.
	Context string
	// Skills are the caller's, each by another name.
	Skills []Skill
	// ExtraCA holds the operator's extra PEM certificates, empty for none.
	ExtraCA []byte
	// GitHub is the run's access to GitHub, nil for none.
	GitHub *GitHub
	// Worker are the files of the code that the run brought along, for Command alone.
	Worker []wire.File
}

// A Skill is a directory with a file SKILL.md; see https://agentskills.io/specification.
type Skill struct {
	Name string
	// SHA256 is that of the lines that sha256sum prints of its files, sorted by their paths.
	SHA256 string
	Files  []SkillFile
}

// A SkillFile is a file of a skill.
type SkillFile struct {
	Path       string // relative to the skill, clean
	Content    []byte
	Executable bool
}

// GitHub is what a run has of GitHub.
type GitHub struct {
	Profile  string
	Access   github.Access
	Identity github.Identity
	// Token is the value itself: it goes into the job and nowhere else.
	Token string
	// Key is the App's private key, empty where it must not enter the sandbox.
	Key []byte
}

// A Secret is one that an agent is given in a variable of its environment.
type Secret struct {
	Name     string // by which it is known: of a key, its variable
	Variable string
	// File says that the variable holds the path of a file with the value.
	File bool
	// Value goes into the job and nowhere else.
	Value string
}

// A Parser follows one run. It is fed from one goroutine.
type Parser interface {
	// Stdout takes the next bytes of the process's standard output, cut anywhere,
	// and returns the events they complete. It never keeps more than a bounded
	// part of an unfinished line.
	Stdout(p []byte) []api.Event
	// Finish is called once, after the process has ended.
	Finish(exit wire.Exit) Outcome
}

// An Outcome is the agent's part of a result.
type Outcome struct {
	Output          string
	OutputTruncated bool
	Turns           int
	SessionID       string
	Usage           api.Usage
	APIDurationMS   int64
	StopReason      string
	// Err is nil where the agent did its work.
	Err *api.Error
	// Events are those that only the end reveals.
	Events []api.Event
}
