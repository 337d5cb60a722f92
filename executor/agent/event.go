package agent

import (
	"bytes"
	"encoding/json"
	"math"
)

// record is a line of pi's event stream (its docs/json.md), or of agentic-pi's, which adds
// sessionId and timestamp to each and a few types of its own. Only what is read is named.
type record struct {
	Type string `json:"type"`

	// session
	ID string `json:"id"`

	// message_end
	Message *message `json:"message"`

	// tool_execution_start, tool_execution_end
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Args       json.RawMessage `json:"args"`
	Result     *result         `json:"result"` // also of compaction_end
	IsError    bool            `json:"isError"`

	// auto_retry_start
	Attempt      int     `json:"attempt"`
	MaxAttempts  int     `json:"maxAttempts"`
	DelayMS      float64 `json:"delayMs"`
	ErrorMessage string  `json:"errorMessage"`

	// extension_status, skills_status, sandbox_status; compaction_start
	Name   string `json:"name"`
	Status string `json:"status"`
	Reason string `json:"reason"`

	// fatal_error: an object; extension_error: a string
	Error json.RawMessage `json:"error"`
}

type message struct {
	Role         string  `json:"role"`
	Content      content `json:"content"`
	Provider     string  `json:"provider"`
	Model        string  `json:"model"`
	Usage        usage   `json:"usage"`
	StopReason   string  `json:"stopReason"`
	ErrorMessage string  `json:"errorMessage"`
	DurationMS   float64 `json:"durationMs"`
}

type result struct {
	Content content `json:"content"`
	Usage   usage   `json:"usage"`
}

type usage struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`
	Cost       struct {
		Total float64 `json:"total"`
	} `json:"cost"`
}

// amount is a number that an agent reports, made fit for summing up: an agent
// may print anything.
func amount(f float64) int64 {
	const most = 1e12
	return int64(math.Min(math.Max(f, 0), most))
}

// typeOf reads the type off the head of a line, as pi and agentic-pi write it
// first; "" where it is not there.
func typeOf(head []byte) string {
	rest, ok := bytes.CutPrefix(head, []byte(`{"type":"`))
	if !ok {
		return ""
	}
	name, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok {
		return ""
	}
	return string(name)
}

// wanted says by its head whether a line is worth keeping. Most of a stream is
// message_update, and turn_end and agent_end say everything once more.
func wanted(head []byte) bool {
	switch typeOf(head) {
	case "": // not as expected: only the whole line can tell
		return true
	case "message_end":
		// Those of tools and of the user may carry images; where the head says the role, judge by it.
		_, role, ok := bytes.Cut(head, []byte(`"message":{"role":"`))
		return !ok || bytes.HasPrefix(role, []byte(`assistant"`))
	case "session", "turn_start", "tool_execution_start", "tool_execution_end", "auto_retry_start",
		"compaction_start", "compaction_end", "extension_status", "skills_status", "sandbox_status",
		"extension_error", "fatal_error":
		return true
	}
	return false
}
