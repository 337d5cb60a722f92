package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/firewall"
)

// How much of what the agent does is shown.
const (
	argsShown   = 200 // characters of a tool's arguments
	linesShown  = 8   // lines of a tool's result
	columnsSeen = 400 // characters of such a line
)

// A View shows the events of a run to a person.
type View struct {
	Out io.Writer
	// Output takes what a command writes; if nil, Out does.
	Output io.Writer
	// Whole shows the last text at once, too: there is no result to follow it.
	Whole bool

	started time.Time
	// held is the last text of the agent, which may turn out to be the result.
	held string
	// column says that a command's output did not end its line.
	column bool
}

// Event shows one event. All that comes from the sandbox is made safe.
func (v *View) Event(ev api.Event) {
	if v.started.IsZero() {
		v.started = ev.Time
	}
	if ev.Type == api.EventResult {
		v.release(ev.Result)
		return
	}
	if ev.Type != api.EventUsage && ev.Type != api.EventEgress {
		v.release(nil)
	}
	switch ev.Type {
	case api.EventAccepted:
		v.note(ev, "run %s", ev.Execution)
	case api.EventStage:
		v.note(ev, "%s", ev.Stage)
	case api.EventSession:
		v.note(ev, "session %s %s", ev.SessionID, ev.Model)
	case api.EventText:
		if v.held = ev.Text; v.Whole {
			v.release(nil)
		}
	case api.EventThinking:
		v.lines("  ~ ", ev.Text, linesShown)
	case api.EventToolStart:
		v.toolStart(ev)
	case api.EventToolEnd:
		v.toolEnd(ev)
	case api.EventOutput:
		v.commandOutput(ev.Text)
	case api.EventStderr:
		v.lines("  | ", ev.Text, -1)
	case api.EventRetry, api.EventWarning:
		v.note(ev, "%s: %s", ev.Type, ev.Text)
	case api.EventEgress:
		v.egress(ev)
	}
}

// note shows a line of the run's own, with the time since its first event.
func (v *View) note(ev api.Event, format string, args ...any) {
	v.newline()
	fmt.Fprintf(v.Out, "%7.2fs  %s\n", ev.Time.Sub(v.started).Seconds(), terminal.OneLine(fmt.Sprintf(format, args...), columnsSeen))
}

// release shows the text that was held back, unless it is the result's output.
func (v *View) release(result *api.Result) {
	text := strings.TrimSpace(v.held)
	v.held = ""
	if text != "" && (result == nil || v.Whole || strings.TrimSpace(result.Output) != text) {
		v.lines("", text, -1)
	}
	if result != nil {
		v.newline()
	}
}

// lines shows text, each line behind a prefix, and at most max of them.
func (v *View) lines(prefix, text string, max int) {
	v.newline()
	n := 0
	for line := range strings.Lines(strings.TrimRight(text, "\r\n")) {
		if n++; max >= 0 && n > max {
			fmt.Fprintf(v.Out, "%s...\n", prefix)
			return
		}
		line = strings.TrimRight(line, "\r\n")
		if max >= 0 {
			line = terminal.Cut(line, columnsSeen)
		}
		fmt.Fprintf(v.Out, "%s%s\n", prefix, terminal.Safe(line))
	}
}

func (v *View) toolStart(ev api.Event) {
	if t := ev.Tool; t != nil {
		v.newline()
		fmt.Fprintf(v.Out, "  > %s %s\n", terminal.OneLine(t.Name, 60), terminal.OneLine(argsText(t.Args), argsShown))
	}
}

// argsText is the one argument of a tool, or all of them as JSON.
func argsText(args json.RawMessage) string {
	var one map[string]string
	if json.Unmarshal(args, &one) == nil && len(one) == 1 {
		for _, s := range one {
			return s
		}
	}
	var b bytes.Buffer
	if json.Compact(&b, args) != nil {
		return string(args)
	}
	return b.String()
}

func (v *View) toolEnd(ev api.Event) {
	if t := ev.Tool; t != nil {
		prefix := "    "
		if t.IsError {
			prefix = "  ! "
		}
		v.lines(prefix, t.Result, linesShown)
	}
}

// commandOutput passes on what a command writes, as it comes.
func (v *View) commandOutput(text string) {
	out := v.Output
	if out == nil {
		out = v.Out
	}
	fmt.Fprint(out, terminal.Safe(text))
	v.column = text != "" && !strings.HasSuffix(text, "\n")
}

// newline ends a line that a command's output left open.
func (v *View) newline() {
	if v.column {
		v.column = false
		if v.Output != nil {
			fmt.Fprintln(v.Output)
		} else {
			fmt.Fprintln(v.Out)
		}
	}
}

// egress shows what the gate refused; what it allowed is in the receipt.
func (v *View) egress(ev api.Event) {
	d := ev.Decision
	if d == nil || d.Verdict == firewall.Allow {
		return
	}
	what := fmt.Sprintf("%s refused: %s %s", d.Kind, d.Host, d.Reason)
	if d.Detail != "" {
		what += ": " + d.Detail
	}
	v.note(ev, "%s", what)
}
