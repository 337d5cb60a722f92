package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
)

// Bounds of one message and of a run's complaints.
const (
	maxBlocks   = 256 // of a message that are read
	maxWarnings = 20  // about the agent's output in a run
)

var sessionID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// stream is the parser of pi's JSON mode and of agentic-pi.
type stream struct {
	agent string
	model string // that the run asked for
	now   func() time.Time
	lines lines

	events   []api.Event // of the current call of Stdout
	warnings int

	session  string
	messages int // assistant messages so far
	turns    int
	usage    api.Usage
	apiMS    int64
	asked    time.Time           // when the model was asked last
	started  map[string]struct{} // uses of tools that the last message announced
	last     *message            // the last of the assistant, without its content
	text     string              // of that message, cut to maxOutput
	cut      bool                // whether it was
	fatal    string              // the message of a fatal_error
	sandbox  string              // why agentic-pi's own sandbox failed
}

func newStream(agent string, in Input) *stream {
	s := &stream{agent: agent, model: in.Config.Model, now: time.Now, started: map[string]struct{}{}}
	s.lines = lines{wanted: wanted, line: s.line, tooLong: func() {
		s.warn(fmt.Sprintf("a line of more than %d bytes from %s was dropped", maxLine, agent))
	}}
	return s
}

// Stdout implements Parser.
func (s *stream) Stdout(p []byte) []api.Event {
	s.lines.feed(p)
	return s.take()
}

// Finish implements Parser.
func (s *stream) Finish(exit wire.Exit) Outcome {
	s.lines.flush()
	o := Outcome{
		Turns:         s.turns,
		SessionID:     s.session,
		Usage:         s.usage,
		APIDurationMS: s.apiMS,
		Output:        s.text, OutputTruncated: s.cut,
		Events: s.take(),
	}
	o.StopReason, o.Err = s.verdict(exit)
	return o
}

func (s *stream) take() []api.Event {
	events := s.events
	s.events = nil
	return events
}

func (s *stream) emit(e api.Event) { s.events = append(s.events, e) }

// warn emits a warning, as long as there have not been too many.
func (s *stream) warn(text string) {
	if s.warnings++; s.warnings <= maxWarnings {
		s.emit(api.Event{Type: api.EventWarning, Text: marked(text)})
	}
}

func (s *stream) line(p []byte) {
	if !utf8.Valid(p) {
		// Replaced here once, as raw JSON would carry bad bytes on.
		p = bytes.ToValidUTF8(p, []byte("\uFFFD"))
	}
	var r record
	err := json.Unmarshal(p, &r)
	if odd := (*json.UnmarshalTypeError)(nil); errors.As(err, &odd) {
		err = nil // one field of a form that is not ours to read; the others are there
	}
	if err != nil || r.Type == "" {
		head, _ := cut(string(p), 200)
		s.warn(fmt.Sprintf("%s printed a line that is not an event: %q", s.agent, head))
		return
	}
	switch r.Type {
	case "session":
		s.begin(r)
	case "turn_start":
		s.asked = s.now()
	case "message_end":
		if r.Message != nil && r.Message.Role == "assistant" {
			s.message(r.Message)
		}
	case "tool_execution_start":
		s.toolStart(r)
	case "tool_execution_end":
		s.toolEnd(r)
	case "auto_retry_start":
		s.emit(api.Event{Type: api.EventRetry, Text: marked(fmt.Sprintf("attempt %d of %d in %.0f ms: %s",
			r.Attempt, r.MaxAttempts, r.DelayMS, readProviderError(r.ErrorMessage).message))})
	default:
		s.rare(r)
	}
}

// rare takes the types that most runs never have.
func (s *stream) rare(r record) {
	switch r.Type {
	case "compaction_start":
		s.warn("the conversation grew too long and is being summed up: " + r.Reason)
	case "compaction_end":
		if r.Result != nil {
			s.spend(r.Result.Usage, "", "")
		}
	case "extension_status", "skills_status", "sandbox_status":
		if r.Status != "error" && r.Status != "failed" {
			return
		}
		kind, _, _ := strings.Cut(r.Type, "_")
		s.warn(fmt.Sprintf("%s %s failed: %s", kind, short(r.Name), r.Reason))
		if kind == "sandbox" {
			s.sandbox = marked("the agent's own sandbox failed: " + r.Reason)
		}
	case "extension_error":
		s.warn(fmt.Sprintf("an extension failed: %s", r.Error))
	case "fatal_error":
		var e struct{ Name, Message string }
		// What does not decode leaves both empty.
		_ = json.Unmarshal(r.Error, &e)
		s.fatal = marked(strings.TrimPrefix(e.Name+": "+e.Message, ": "))
	}
}

func (s *stream) begin(r record) {
	if s.session != "" {
		return
	}
	if !sessionID.MatchString(r.ID) {
		s.warn(fmt.Sprintf("%s has a session identifier of a strange form: %.200q", s.agent, r.ID))
		return
	}
	s.session = r.ID
	s.emit(api.Event{Type: api.EventSession, SessionID: r.ID, Model: s.model})
}

// message takes one whole message of the model.
func (s *stream) message(m *message) {
	s.messages++
	id := fmt.Sprintf("m%d", s.messages)
	s.timed(m.DurationMS)
	clear(s.started)
	failed := m.StopReason == "error" || m.StopReason == "aborted"
	if !failed {
		s.turns++
	}
	if m.Content.more {
		s.warn(fmt.Sprintf("a message of more than %d parts was cut there", maxBlocks))
	}
	for _, b := range m.Content.blocks {
		switch {
		case b.Type == "text" && b.Text != "":
			s.emit(api.Event{Type: api.EventText, MessageID: id, Text: marked(b.Text)})
		case b.Type == "thinking" && b.Thinking != "":
			s.emit(api.Event{Type: api.EventThinking, MessageID: id, Text: marked(b.Thinking)})
		case b.Type == "toolCall" && !failed: // a failed message's are not run
			s.announce(id, b.ID, b.Name, b.Arguments)
		}
	}
	s.spend(m.Usage, id, m.Model)
	text, was := cut(m.Content.text(), maxOutput)
	s.text, s.cut = strings.Clone(text), was || m.Content.more
	s.last = &message{Provider: short(m.Provider), Model: short(m.Model), StopReason: short(m.StopReason), ErrorMessage: marked(m.ErrorMessage)}
}

// timed adds the time that the model took for a message: what the agent says,
// else the time since it was asked.
func (s *stream) timed(ms float64) {
	now := s.now()
	switch {
	case ms > 0:
		s.apiMS += amount(ms)
	case !s.asked.IsZero():
		s.apiMS += now.Sub(s.asked).Milliseconds()
	}
	s.asked = now
}

// spend adds what a message cost.
func (s *stream) spend(u usage, id, model string) {
	v := api.Usage{
		InputTokens:         amount(u.Input),
		OutputTokens:        amount(u.Output),
		CacheReadTokens:     amount(u.CacheRead),
		CacheCreationTokens: amount(u.CacheWrite),
		CostUSD:             min(max(u.Cost.Total, 0), 1e6),
	}
	s.usage.Add(v)
	s.emit(api.Event{Type: api.EventUsage, MessageID: id, Model: short(model), Usage: &v})
}

func (s *stream) announce(message, id, name string, args json.RawMessage) {
	id = short(id)
	s.started[id] = struct{}{}
	s.emit(api.Event{Type: api.EventToolStart, MessageID: message,
		Tool: &api.Tool{ID: id, Name: short(name), Args: boundArgs(args)}})
}

// toolStart announces a use of a tool that no message did.
func (s *stream) toolStart(r record) {
	if _, ok := s.started[short(r.ToolCallID)]; !ok {
		s.announce("", r.ToolCallID, r.ToolName, r.Args)
	}
	if len(s.started) > maxBlocks {
		clear(s.started)
	}
}

func (s *stream) toolEnd(r record) {
	t := &api.Tool{ID: short(r.ToolCallID), Name: short(r.ToolName), IsError: r.IsError}
	if r.Result != nil {
		t.Result, t.Truncated = cut(r.Result.Content.text(), maxText)
		t.Truncated = t.Truncated || r.Result.Content.more
	}
	s.emit(api.Event{Type: api.EventToolEnd, Tool: t})
}
