package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"sallyport/executor/api"
	"sallyport/firewall"
)

// How much of what the agent does is shown.
const (
	argsShown   = 200 // characters of a tool's arguments
	linesShown  = 8   // lines of a tool's result
	columnsSeen = 400 // characters of such a line
)

// A view shows the events of a run to a person.
type view struct {
	out io.Writer
	// output takes what a command writes; if nil, out does.
	output io.Writer
	// whole shows the last text at once, too: there is no result to follow it.
	whole bool

	started time.Time
	// held is the last text of the agent, which may turn out to be the result.
	held string
	// column says that a command's output did not end its line.
	column bool
}

// event shows one event. All that comes from the sandbox is made safe.
func (v *view) event(ev api.Event) {
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
		if v.held = ev.Text; v.whole {
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
func (v *view) note(ev api.Event, format string, args ...any) {
	v.newline()
	fmt.Fprintf(v.out, "%7.2fs  %s\n", ev.Time.Sub(v.started).Seconds(), oneLine(fmt.Sprintf(format, args...), columnsSeen))
}

// release shows the text that was held back, unless it is the result's output.
func (v *view) release(result *api.Result) {
	text := strings.TrimSpace(v.held)
	v.held = ""
	if text != "" && (result == nil || v.whole || strings.TrimSpace(result.Output) != text) {
		v.lines("", text, -1)
	}
	if result != nil {
		v.newline()
	}
}

// lines shows text, each line behind a prefix, and at most max of them.
func (v *view) lines(prefix, text string, max int) {
	v.newline()
	n := 0
	for line := range strings.Lines(strings.TrimRight(text, "\r\n")) {
		if n++; max >= 0 && n > max {
			fmt.Fprintf(v.out, "%s...\n", prefix)
			return
		}
		line = strings.TrimRight(line, "\r\n")
		if max >= 0 {
			line = cut(line, columnsSeen)
		}
		fmt.Fprintf(v.out, "%s%s\n", prefix, safe(line))
	}
}

func (v *view) toolStart(ev api.Event) {
	if t := ev.Tool; t != nil {
		v.newline()
		fmt.Fprintf(v.out, "  > %s %s\n", oneLine(t.Name, 60), oneLine(argsText(t.Args), argsShown))
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

func (v *view) toolEnd(ev api.Event) {
	if t := ev.Tool; t != nil {
		prefix := "    "
		if t.IsError {
			prefix = "  ! "
		}
		v.lines(prefix, t.Result, linesShown)
	}
}

// commandOutput passes on what a command writes, as it comes.
func (v *view) commandOutput(text string) {
	out := v.output
	if out == nil {
		out = v.out
	}
	fmt.Fprint(out, safe(text))
	v.column = text != "" && !strings.HasSuffix(text, "\n")
}

// newline ends a line that a command's output left open.
func (v *view) newline() {
	if v.column {
		v.column = false
		if v.output != nil {
			fmt.Fprintln(v.output)
		} else {
			fmt.Fprintln(v.out)
		}
	}
}

// egress shows what the gate refused; what it allowed is in the receipt.
func (v *view) egress(ev api.Event) {
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
