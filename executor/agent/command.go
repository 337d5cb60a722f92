package agent

import (
	"strings"
	"unicode/utf8"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
)

// maxArgv is the longest argv that is taken, in bytes; the kernel's own bound on
// one argument is the same.
const maxArgv = 128 << 10

// CommandName is the value of config.agent for Command.
const CommandName = "command"

// Command runs the caller's own program: config.argv, with the prompt on its
// standard input. Its standard output is the result's output, its exit code
// the verdict. It gets the same environment as other agents, keys included.
// Model and variant mean nothing to it and are left to the program's owner.
type Command struct{}

// Check implements Program.
func (Command) Check(in Input) *api.Problem {
	const field = "config.argv"
	argv := in.Config.Argv
	if len(argv) == 0 || argv[0] == "" {
		return unacceptable(field, `config.argv is missing; the agent command needs the program and its arguments, such as ["bash", "-c", "make test"]`)
	}
	size := 0
	for _, a := range argv {
		if strings.ContainsRune(a, 0) {
			return unacceptable(field, "config.argv holds a NUL byte; no program can be given one")
		}
		size += len(a) + 1
	}
	if size > maxArgv {
		return unacceptable(field, "config.argv has %d bytes; it may have %d", size, maxArgv)
	}
	return checkSearch(in)
}

// Command implements Program.
func (Command) Command(in Input) wire.Job {
	j := job(in, in.Config.Argv, homeDir+"/AGENTS.md", nil)
	addSkills(&j, in.Skills, claudeSkillsDir) // whichever agent the program is
	j.Files = append(j.Files, in.Worker...)
	return j
}

// NewParser implements Program.
func (Command) NewParser(Input) Parser { return &output{} }

// output is the parser of a program without a dialect.
type output struct {
	all  tally
	rest []byte // of a rune that the last piece cut, at most three bytes
}

// Stdout implements Parser.
func (o *output) Stdout(p []byte) []api.Event {
	if len(o.rest) > 0 {
		p = append(o.rest, p...)
	}
	n := len(p) - unfinished(p)
	o.rest = append([]byte(nil), p[n:]...)
	return o.events(p[:n])
}

func (o *output) events(p []byte) []api.Event {
	text := strings.ToValidUTF8(string(p), "\uFFFD")
	o.all.add(text)
	var events []api.Event
	for text != "" {
		piece, _ := cut(text, maxText)
		text = text[len(piece):]
		events = append(events, api.Event{Type: api.EventOutput, Text: piece})
	}
	return events
}

// Finish implements Parser.
func (o *output) Finish(exit wire.Exit) Outcome {
	out := Outcome{Events: o.events(o.rest), StopReason: stopSuccess}
	out.Output, out.OutputTruncated = o.all.text.String(), o.all.truncated
	if clean(exit) {
		return out
	}
	stop, message := badExit("the command", exit)
	out.StopReason = stop
	out.Err = &api.Error{Code: api.CodeCommandFailed, Message: message, Details: map[string]any{"exitCode": exit.Status()}}
	if exit.Signal != "" {
		out.Err.Details["signal"] = exit.Signal
	}
	return out
}

// unfinished is the length of a rune at the end of p that has begun and may go on.
func unfinished(p []byte) int {
	for n := 1; n <= min(len(p), utf8.UTFMax-1); n++ {
		if c := p[len(p)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(p[len(p)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
