package api

import (
	"encoding/json"
	"time"

	"sallyport/firewall/account"
)

// EventType names what an event says.
type EventType string

// The events of an execution, in the order of their first appearance. Exactly
// one EventResult ends every stream.
const (
	EventAccepted  EventType = "accepted"   // the request is valid; Execution is set
	EventStage     EventType = "stage"      // Stage was reached: queue, token, cell, start, ready, checkout, running, teardown
	EventSession   EventType = "session"    // the agent's session; SessionID is set
	EventText      EventType = "text"       // a whole assistant text; Text
	EventThinking  EventType = "thinking"   // a whole block of reasoning; Text
	EventToolStart EventType = "tool_start" // Tool
	EventToolEnd   EventType = "tool_end"   // Tool with its result
	EventUsage     EventType = "usage"      // Usage of one assistant message, of which it is the last event; Model
	EventOutput    EventType = "output"     // raw standard output of the agent "command"; Text
	EventStderr    EventType = "stderr"     // standard error of the agent's process; Text
	EventRetry     EventType = "retry"      // the agent tries its provider again; Text
	EventWarning   EventType = "warning"    // something a caller should know; Text
	EventEgress    EventType = "egress"     // Decision: what the gate answered and why
	EventResult    EventType = "result"     // Result: the end
)

// An Event is one line of the NDJSON stream, one message of the SSE stream.
type Event struct {
	Seq  int64     `json:"seq"` // from 1, without gaps
	Time time.Time `json:"time"`
	Type EventType `json:"type"`

	Execution string `json:"executionId,omitempty"`
	Stage     string `json:"stage,omitempty"`
	// Queue is where a run stands that waits for its place, with the stage "queue".
	Queue     *QueuePlace `json:"queue,omitempty"`
	SessionID string      `json:"sessionId,omitempty"`
	// MessageID is the same for all that one assistant message says: its texts,
	// thinking, tool starts and usage. It is unique within a run.
	MessageID string          `json:"messageId,omitempty"`
	Model     string          `json:"model,omitempty"`
	Text      string          `json:"text,omitempty"`
	Tool      *Tool           `json:"tool,omitempty"`
	Usage     *Usage          `json:"usage,omitempty"`
	Decision  *account.Record `json:"decision,omitempty"`
	Result    *Result         `json:"result,omitempty"`
}

// A QueuePlace is where a run stands among those that wait. Those that come later may
// overtake it, by the weights of tenants.
type QueuePlace struct {
	Ahead          int   `json:"ahead"`          // so many begin before it
	ExpectedWaitMS int64 `json:"expectedWaitMs"` // by how long runs took lately
}

// A Tool is one use of a tool by the agent.
type Tool struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args,omitempty"`
	// Result is the tool's text, at most 64 KiB; Truncated says that there was more.
	Result    string `json:"result,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
	IsError   bool   `json:"isError,omitempty"`
}

// Usage is what one assistant message, or a whole run, cost.
type Usage struct {
	InputTokens         int64   `json:"inputTokens"`
	OutputTokens        int64   `json:"outputTokens"`
	CacheReadTokens     int64   `json:"cacheReadInputTokens"`
	CacheCreationTokens int64   `json:"cacheCreationInputTokens"`
	CostUSD             float64 `json:"costUsd"`
}

// Add adds v to u.
func (u *Usage) Add(v Usage) {
	u.InputTokens += v.InputTokens
	u.OutputTokens += v.OutputTokens
	u.CacheReadTokens += v.CacheReadTokens
	u.CacheCreationTokens += v.CacheCreationTokens
	u.CostUSD += v.CostUSD
}
