// Package audit keeps one signed record of each task. A record is an in-toto Statement in
// a DSSE envelope; envelopes stand in an append-only log, a tree of hashes (RFC 6962)
// whose root is signed again with each of them. What was exported verifies with a public
// key alone:
//
//	log, err := audit.Open(dir)           // makes key and log at the first start
//	place, err := log.Append(record)      // on disk, and in the tree, once it returns
//	err = audit.Export(file, dir, nil)
//	report, err := audit.Verify(file, audit.Trust{Keys: keys}, nil)
//
// The log shows what was changed, taken out or put in afterwards to everybody who has a
// public key. Whoever holds the private key can write another log; that shows to those
// alone who have kept a checkpoint, an export or a Place of the first.
package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// The predicate types of the log's statements.
const (
	TypeRun = "https://sallyport.org/attestation/run/v1"       // a Record
	TypeKey = "https://sallyport.org/attestation/audit-key/v1" // a KeyRecord
)

// A Record is what is signed of one task. What the executor does not know is empty, never
// left out. It holds names of secrets, and no value of one.
type Record struct {
	Execution string `json:"execution"`
	Tenant    string `json:"tenant"`
	Principal string `json:"principal"`

	Workflow Workflow `json:"workflow"`
	Task     Task     `json:"task"`
	Profile  Profile  `json:"profile"`
	// Approvals are those of the very versions that ran.
	Approvals []Approval `json:"approvals"`
	Sandbox   Sandbox    `json:"sandbox"`
	Command   Command    `json:"command"`
	Agent     Agent      `json:"agent"`
	Network   Network    `json:"network"`
	// Tokens are what the run could do on other services.
	Tokens    []TokenScope `json:"tokens"`
	Artifacts []Artifact   `json:"artifacts"`
	// Commit is that of the workspace's repository, 40 hexadecimal digits, or empty.
	Commit  string  `json:"commit"`
	Outcome Outcome `json:"outcome"`
	Events  Events  `json:"events"`
}

// A Workflow is the caller's: which definition, and which run of it.
type Workflow struct {
	Definition string `json:"definition"`
	Version    string `json:"version"`
	Instance   string `json:"instance"`
}

// A Task is one step of a workflow.
type Task struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// CodeSHA256 is the digest of the worker code that ran, in hexadecimal.
	CodeSHA256 string `json:"codeSha256"`
	// DependenciesSHA256 is that of what the code declares to depend on.
	DependenciesSHA256 string `json:"dependenciesSha256"`
}

// An Approval is one that a run relied on. Its decisions are records of the same log.
type Approval struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Tier   string `json:"tier"`
}

// A Profile is which security profile was asked for, and which was in force.
type Profile struct {
	Requested     string `json:"requested"`
	Effective     string `json:"effective"`
	PolicyVersion int64  `json:"policyVersion"` // 0 for none
}

// A Sandbox is where the task ran.
type Sandbox struct {
	Provider    string `json:"provider"`  // the backend, such as docker
	Isolation   string `json:"isolation"` // such as container
	Mode        string `json:"mode"`      // such as per-task
	Template    string `json:"template"`
	Image       string `json:"image"`
	ImageDigest string `json:"imageDigest"` // sha256:..., of the image that ran
	Tier        string `json:"tier"`
	Session     string `json:"session"`
	ID          string `json:"id"` // the backend's own
}

// A Command is what ran, and with what.
type Command struct {
	Argv      []string `json:"argv"`
	Directory string   `json:"directory"` // in the sandbox
	// Environment and Secrets are names.
	Environment []string `json:"environment"`
	Secrets     []string `json:"secrets"`
}

// An Agent is what is known of a model's agent.
type Agent struct {
	Name          string `json:"name"`
	Session       string `json:"session"` // the agent's own
	Provider      string `json:"provider"`
	Model         string `json:"model"`
	PromptProfile string `json:"promptProfile"`
	PromptSHA256  string `json:"promptSha256"`
	// ContextSHA256 is that of what the caller gave for AGENTS.md; empty for nothing.
	ContextSHA256 string  `json:"contextSha256"`
	Skills        []Skill `json:"skills"`
	TokenBudget   int64   `json:"tokenBudget"` // 0 for none
	InputTokens   int64   `json:"inputTokens"`
	OutputTokens  int64   `json:"outputTokens"`
	OutputSchema  string  `json:"outputSchema"`
	Validation    string  `json:"validation"` // passed, failed or empty
	ToolsAllowed  bool    `json:"toolsAllowed"`
}

// A Skill is one that the caller gave the agent.
type Skill struct {
	Name string `json:"name"`
	// SHA256 is that of the lines that sha256sum prints of its files, sorted by their paths.
	SHA256 string `json:"sha256"`
}

// A Network is what the task could reach, and what it did reach.
type Network struct {
	Policy string `json:"policy"`
	Digest string `json:"digest"` // of the policy
	// Receipt is the gate's, as the result has it; a JSON object.
	Receipt  json.RawMessage `json:"receipt"`
	Boundary Boundary        `json:"boundary"`
}

// A Boundary is the proof that nothing got past the gate when it was last tried.
type Boundary struct {
	Passed  bool       `json:"passed"`
	Checked *time.Time `json:"checked"`
	SHA256  string     `json:"sha256"` // of the whole report, in JSON
}

// A TokenScope is what one kind of token allowed.
type TokenScope struct {
	Source       string            `json:"source"` // such as app
	Profile      string            `json:"profile"`
	Owner        string            `json:"owner"`
	Repositories []string          `json:"repositories"`
	Permissions  map[string]string `json:"permissions"`
	Downscoped   bool              `json:"downscoped"`
	Revoked      bool              `json:"revoked"`
}

// An Artifact is a file that the task left. One that was not kept has no digest.
type Artifact struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"` // in bytes
	SHA256  string `json:"sha256"`
	Skipped string `json:"skipped,omitempty"`
}

// The values of Outcome.State.
const (
	StateFinished = "finished"
	StateLost     = "lost" // its executor died; the record is what was on disk
)

// An Outcome is how the task ended.
type Outcome struct {
	State        string     `json:"state"`
	Success      bool       `json:"success"`
	Code         string     `json:"code"` // of the failure, or empty
	StopReason   string     `json:"stopReason"`
	ExitCode     *int       `json:"exitCode"` // nil where nobody saw it
	Accepted     time.Time  `json:"accepted"`
	Ended        *time.Time `json:"ended"` // nil where nobody saw it
	DurationMS   int64      `json:"durationMs"`
	OutputBytes  int64      `json:"outputBytes"`
	OutputSHA256 string     `json:"outputSha256"`
}

// Events are those that the executor kept of the task, up to its end. See EventTree.
type Events struct {
	Log    string `json:"log"`    // where they can be read
	Count  int64  `json:"count"`  // lines
	Bytes  int64  `json:"bytes"`  // of these lines
	SHA256 string `json:"sha256"` // of these bytes
	Root   string `json:"root"`   // of the tree over these lines, in hexadecimal
}

// A KeyRecord says by which key all that follows in the log is signed. It is signed by
// that key and by the one before.
type KeyRecord struct {
	Key      string    `json:"key"`      // PEM
	Previous string    `json:"previous"` // fingerprint; empty for the first
	Time     time.Time `json:"time"`
}

// statement is the in-toto Statement of a record: its subjects are the artifacts, the
// commit, and the events, of which there always are some.
func (r Record) statement() ([]byte, error) {
	var subjects []*intoto.ResourceDescriptor
	for _, a := range r.Artifacts {
		if a.Skipped == "" {
			subjects = append(subjects, subject(a.Name, "sha256", a.SHA256))
		}
	}
	if r.Commit != "" {
		subjects = append(subjects, subject("commit", string(intoto.AlgorithmGitCommit), r.Commit))
	}
	subjects = append(subjects, subject(r.Events.Log, "sha256", r.Events.SHA256))
	return statement(TypeRun, subjects, r.filled())
}

// filled is the record with lists in the place of none, as its schema has it.
func (r Record) filled() Record {
	fill(&r.Approvals)
	fill(&r.Tokens)
	fill(&r.Artifacts)
	fill(&r.Agent.Skills)
	fill(&r.Command.Argv)
	fill(&r.Command.Environment)
	fill(&r.Command.Secrets)
	if r.Network.Receipt == nil {
		r.Network.Receipt = json.RawMessage("{}")
	}
	return r
}

func fill[T any](list *[]T) {
	if *list == nil {
		*list = []T{}
	}
}

func subject(name, algorithm, digest string) *intoto.ResourceDescriptor {
	return &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{algorithm: digest}}
}

// A Statement is what an envelope of the log holds: in-toto's, version 1.
type Statement struct {
	Type          string          `json:"_type"`
	Subject       []Subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

// A Subject is what a statement is about, with its digests by their algorithm.
type Subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// statement encodes a Statement. The library checks it and does not write it: protobuf's
// JSON takes ten times as long, and puts spaces where it likes.
func statement(predicateType string, subjects []*intoto.ResourceDescriptor, predicate any) ([]byte, error) {
	check := intoto.Statement{Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: predicateType, Predicate: &structpb.Struct{}}
	if err := check.Validate(); err != nil {
		return nil, fmt.Errorf("the statement: %w", err)
	}
	text, err := encodeLine(predicate)
	if err != nil {
		return nil, err
	}
	s := Statement{Type: check.Type, PredicateType: predicateType, Predicate: text}
	for _, of := range subjects {
		s.Subject = append(s.Subject, Subject{of.GetName(), of.GetDigest()})
	}
	text, err = encodeLine(s)
	return bytes.TrimSuffix(text, []byte("\n")), err
}

// Run returns the Record of a statement of TypeRun.
func (s Statement) Run() (Record, error) {
	var r Record
	if s.PredicateType != TypeRun {
		return r, fmt.Errorf("a statement of the type %q is no record of a run", s.PredicateType)
	}
	err := json.Unmarshal(s.Predicate, &r)
	return r, err
}
