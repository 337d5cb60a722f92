package api

import (
	"encoding/json"
	"time"
)

// The kinds of what is approved.
const (
	KindProfile = "profile"
	KindTask    = "task"
	KindWorker  = "worker"
)

// The states of an approval.
const (
	ApprovalPending   = "pending"
	ApprovalApproved  = "approved"
	ApprovalRefused   = "refused"
	ApprovalWithdrawn = "withdrawn"
)

// Approval is what somebody has to approve, in one very version, and what became of it.
type Approval struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"` // empty for the operator's own
	Kind   string `json:"kind"`   // profile, task or worker
	Name   string `json:"name"`
	Digest string `json:"digest"` // of all that decides what it may do
	State  string `json:"state"`  // pending, approved, refused or withdrawn
	// Seq is that of the last of History. A decision gives it back, so that it is about
	// what its principal has seen.
	Seq  int64  `json:"seq"`
	Tier string `json:"tier,omitempty"` // the most that runs get; absent for no bound of its own
	// Definition is what Digest is of: the SHA-256 of this very text, unless a secret was
	// taken out of it. Lists have none.
	Definition json.RawMessage `json:"definition,omitempty"`
	History    []ApprovalEvent `json:"history,omitempty"` // not in lists
}

// ApprovalEvent is one step of an approval.
type ApprovalEvent struct {
	Seq             int64     `json:"seq"` // rises, over all approvals
	Time            time.Time `json:"time"`
	Type            string    `json:"type"` // the state that it came to
	ApprovalID      string    `json:"approvalId"`
	Tenant          string    `json:"tenant"`
	Kind            string    `json:"kind"`
	Name            string    `json:"name"`
	Digest          string    `json:"digest"`
	Principal       string    `json:"principal"` // who asked, or decided
	PrincipalTenant string    `json:"principalTenant"`
	Comment         string    `json:"comment,omitempty"`
	Tier            string    `json:"tier,omitempty"`
}

// ApprovalList is the answer to GET /v1/approvals, newest first.
type ApprovalList struct {
	Approvals []Approval `json:"approvals"`
	// Next is the value of before for the next page; absent on the last one.
	Next string `json:"next,omitempty"`
}

// ApprovalDecision is the body of POST /v1/approvals/{id}/approve, refuse and withdraw.
type ApprovalDecision struct {
	Seq     int64  `json:"seq"`
	Comment string `json:"comment,omitempty"` // at most 1024 printable bytes
	Tier    string `json:"tier,omitempty"`    // of approve alone: the most that runs get
}

// ApprovalRef is an approval that a run relies on.
type ApprovalRef struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Tier   string `json:"tier,omitempty"`
}

// Worker is code that a run brings along and that is approved in one very version. It is put
// into the sandbox below /run/sallyport/worker, where config.argv finds it.
type Worker struct {
	Name string `json:"name"`
	// Code and Dependencies are texts by their paths, such as worker.py and
	// requirements.txt.
	Code         map[string]string `json:"code"`
	Dependencies map[string]string `json:"dependencies,omitempty"`
}
