package api

import "time"

// ExecutionList is the answer to GET /v1/executions: executions, newest first.
type ExecutionList struct {
	Executions []ExecutionSummary `json:"executions"`
	// Next is what the query's "before" must be for the next page; empty where
	// this is the last.
	Next string `json:"next,omitempty"`
}

// An ExecutionSummary is what a list says of an execution.
type ExecutionSummary struct {
	ID         string    `json:"executionId"`
	State      string    `json:"state"` // one of the State constants
	AcceptedAt time.Time `json:"acceptedAt"`
	TaskID     string    `json:"taskId,omitempty"` // as the request had it
	Agent      string    `json:"agent"`
	Policy     string    `json:"policy"`
	Model      string    `json:"model,omitempty"`   // the request's, or the default in its place
	Outcome    *Outcome  `json:"outcome,omitempty"` // once it has finished
}

// An Outcome is a Result in short.
type Outcome struct {
	Success    bool    `json:"success"`
	Code       Code    `json:"code,omitempty"` // of the error
	StopReason string  `json:"stopReason"`
	DurationMS int64   `json:"durationMs"`
	CostUSD    float64 `json:"costUsd"`
	// Refused is how many hosts of the receipt were refused.
	Refused int `json:"refused"`
}

// ListLimit is how many executions one page has at most, and DefaultListLimit
// how many where the query does not say.
const (
	ListLimit        = 100
	DefaultListLimit = 20
)
