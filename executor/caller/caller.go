// Package caller says who makes a call of the API, for whom, and what they may do: a
// Caller is found by the token that a call shows, and goes with the call into the plan of
// its run. There is one today, the operator, whose token lies in the state directory.
package caller

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

// A Caller is who makes a call. The zero value may do nothing.
type Caller struct {
	// Tenant is for whom the call is made: nobody sees what belongs to another tenant.
	// The operator's is the one without a name.
	Tenant string
	// Principal is who makes the call.
	Principal string
	Rights    Rights
}

// Rights are what a caller may do.
type Rights uint8

// The rights.
const (
	Run     Rights = 1 << iota // begin executions, and cancel them
	Read                       // see executions and what they can be asked for
	Operate                    // have the boundary checked
)

// May reports whether the caller has all of the rights.
func (c Caller) May(rights Rights) bool { return c.Rights&rights == rights }

// Operator is the caller who has the operator's token.
func Operator() Caller {
	return Caller{Principal: "operator", Rights: Run | Read | Operate}
}

// MinToken is the fewest characters that a token may have.
const MinToken = 16

// Tokens know callers by the tokens that they show. The zero value knows nobody.
type Tokens struct{ known []known }

// A known is a caller and the digest of its token.
type known struct {
	digest [sha256.Size]byte
	caller Caller
}

// Add has the token stand for the caller.
func (t *Tokens) Add(token string, c Caller) error {
	if len(token) < MinToken {
		return fmt.Errorf("the token has fewer than %d characters", MinToken)
	}
	t.known = append(t.known, known{sha256.Sum256([]byte(token)), c})
	return nil
}

// Caller returns whose the token is, false for nobody's. It takes a time that says
// nothing about the tokens that it knows.
func (t *Tokens) Caller(token string) (Caller, bool) {
	shown := sha256.Sum256([]byte(token))
	var found Caller
	ok := false
	for _, k := range t.known {
		if subtle.ConstantTimeCompare(shown[:], k.digest[:]) == 1 {
			found, ok = k.caller, true
		}
	}
	return found, ok
}
