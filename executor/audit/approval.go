package audit

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	intoto "github.com/in-toto/attestation/go/v1"
)

// TypeApproval is the predicate type of a Decision.
const TypeApproval = "https://sallyport.org/attestation/approval/v1"

// A Decision is what somebody decided about a version of a profile, a task or a worker. The
// statement's subject is that version, by its digest. One that could not be put into force
// after it was signed may be there as well.
type Decision struct {
	Approval        string    `json:"approval"`
	Seq             int64     `json:"seq"`
	Tenant          string    `json:"tenant"`
	Kind            string    `json:"kind"` // profile, task or worker
	Name            string    `json:"name"`
	Digest          string    `json:"digest"` // sha256:...
	State           string    `json:"state"`  // approved, refused or withdrawn
	Principal       string    `json:"principal"`
	PrincipalTenant string    `json:"principalTenant"`
	Time            time.Time `json:"time"`
	Comment         string    `json:"comment"`
	Tier            string    `json:"tier"` // the most that its runs get; empty for no bound
}

// AppendDecision signs a decision and puts it at the end of the log, as Append does a Record.
func (l *Log) AppendDecision(d Decision) (Place, error) {
	sum, ok := strings.CutPrefix(d.Digest, "sha256:")
	if raw, err := hex.DecodeString(sum); err != nil || !ok || len(raw) != 32 {
		return Place{}, fmt.Errorf("the decision about the approval %s is of no digest", d.Approval)
	}
	text, err := statement(TypeApproval, []*intoto.ResourceDescriptor{subject(d.Kind+":"+d.Name, "sha256", sum)}, d)
	if err != nil {
		return Place{}, fmt.Errorf("make the record of a decision: %w", err)
	}
	var place Place
	err = l.locked(func() error {
		place, err = l.append(text, l.key, l.key)
		return err
	})
	if err != nil {
		return Place{}, fmt.Errorf("append the record of a decision: %w", err)
	}
	return place, nil
}

// Decision returns the Decision of a statement of TypeApproval.
func (s Statement) Decision() (Decision, error) {
	var d Decision
	if s.PredicateType != TypeApproval {
		return d, fmt.Errorf("a statement of the type %q is no decision about an approval", s.PredicateType)
	}
	err := json.Unmarshal(s.Predicate, &d)
	return d, err
}
