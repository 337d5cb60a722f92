package sessionlog

import (
	"encoding/json"
	"time"

	"sallyport/executor/api"
)

// envelope is one line. Which fields it has follows from its type: user,
// assistant, system or result.
type envelope struct {
	Type       string   `json:"type"`
	Subtype    string   `json:"subtype,omitempty"`
	Message    *message `json:"message,omitempty"`
	IsAPIError bool     `json:"isApiErrorMessage,omitempty"`
	Error      string   `json:"error,omitempty"`
	Content    string   `json:"content,omitempty"`
	Model      string   `json:"model,omitempty"`
	CWD        string   `json:"cwd,omitempty"`
	*result
	Timestamp string `json:"timestamp"`
	SessionID string `json:"sessionId"`
}

type message struct {
	Role    string `json:"role"`
	Model   string `json:"model,omitempty"`
	Content any    `json:"content"` // a string or []block
	Usage   *usage `json:"usage,omitempty"`
}

// block is a part of a message: text, thinking, tool_use or tool_result.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   *string         `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
}

type usage struct {
	Input         int64 `json:"input_tokens"`
	Output        int64 `json:"output_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
}

// result is the last line's part.
type result struct {
	IsError            bool    `json:"is_error"`
	Result             string  `json:"result"`
	Turns              int     `json:"num_turns"`
	CostUSD            float64 `json:"total_cost_usd"`
	InputTokens        int64   `json:"total_input_tokens"`
	OutputTokens       int64   `json:"total_output_tokens"`
	CacheReadTokens    int64   `json:"total_cache_read_input_tokens"`
	CacheCreatedTokens int64   `json:"total_cache_creation_input_tokens"`
	DurationMS         int64   `json:"duration_ms"`
}

// group is an assistant message whose events have not all come.
type group struct {
	id      string
	at      time.Time
	model   string
	content []block
	usage   *usage
}

// collect adds an event to its message, which the usage event ends.
func (l *Log) collect(e api.Event) {
	if l.group != nil && l.group.id != e.MessageID {
		l.flush()
	}
	if l.group == nil {
		l.group = &group{id: e.MessageID, at: e.Time, model: l.model}
	}
	g := l.group
	switch e.Type {
	case api.EventText:
		g.content = append(g.content, block{Type: "text", Text: e.Text})
	case api.EventThinking:
		g.content = append(g.content, block{Type: "thinking", Thinking: e.Text})
	case api.EventToolStart:
		if e.Tool != nil {
			g.content = append(g.content, block{Type: "tool_use", ID: e.Tool.ID, Name: e.Tool.Name, Input: orEmpty(e.Tool.Args)})
		}
	case api.EventUsage:
		if e.Usage != nil {
			g.usage = &usage{e.Usage.InputTokens, e.Usage.OutputTokens, e.Usage.CacheReadTokens, e.Usage.CacheCreationTokens}
		}
		if e.Model != "" {
			g.model = e.Model
		}
		l.flush()
	}
}

// orEmpty keeps a tool's input an object even where the agent gave none.
func orEmpty(args json.RawMessage) json.RawMessage {
	if len(args) == 0 {
		return json.RawMessage("{}")
	}
	return args
}

// flush writes the collected message. One that says nothing and cost nothing, as
// a refused request leaves it, is not written.
func (l *Log) flush() {
	g := l.group
	l.group = nil
	if g == nil || len(g.content) == 0 && (g.usage == nil || *g.usage == usage{}) {
		return
	}
	if g.content == nil {
		g.content = []block{}
	}
	l.write(envelope{Type: "assistant", Timestamp: l.stamp(g.at),
		Message: &message{Role: "assistant", Model: g.model, Content: g.content, Usage: g.usage}})
}

func (l *Log) toolResult(e api.Event) {
	if e.Tool == nil {
		return
	}
	l.write(envelope{Type: "user", Timestamp: l.stamp(e.Time), Message: &message{Role: "user", Content: []block{
		{Type: "tool_result", ToolUseID: e.Tool.ID, Content: &e.Tool.Result, IsError: e.Tool.IsError},
	}}})
}

// Result logs the end of the run: the failure, if its agent failed, and the totals.
func (l *Log) Result(r api.Result) error {
	l.flush()
	if r.Error != nil && r.Error.Code == api.CodeAgentFailed {
		l.apiError(time.Time{}, r.Error.Message)
	}
	l.write(envelope{Type: "result", Subtype: r.StopReason, Timestamp: l.stamp(time.Time{}), result: &result{
		IsError:            !r.Success,
		Result:             r.Output,
		Turns:              r.Turns,
		CostUSD:            r.CostUSD,
		InputTokens:        r.InputTokens,
		OutputTokens:       r.OutputTokens,
		CacheReadTokens:    r.CacheReadInputTokens,
		CacheCreatedTokens: r.CacheCreationInputTokens,
		DurationMS:         r.DurationMS,
	}})
	return l.err
}
