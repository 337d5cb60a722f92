// Package caller says who makes a call of the API, for whom, and what they may do: a
// Caller is found by the token that a call shows, and goes with the call into the plan of
// its run. The operator's token lies in the state directory, or in a setting; all others
// are made by those who may, and their digests are in the database.
package caller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Caller is who makes a call. The zero value may do nothing.
type Caller struct {
	// Tenant is for whom the call is made: nobody sees what belongs to another tenant.
	// The operator's is the one without a name.
	Tenant string
	// Principal is who makes the call.
	Principal string
	Rights    Rights

	elsewhere bool // the operator's tenant is its own, and Tenant another one
}

// Rights are what a caller may do.
type Rights uint8

// The rights.
const (
	Run     Rights = 1 << iota // begin executions, and cancel them
	Read                       // see executions and what they can be asked for
	Approve                    // decide what waits for an approval
	Operate                    // look after the tokens of its tenant; of the operator's: of all tenants
	// Service is what concerns all tenants at once. It is in no token: who may Operate
	// and is of the operator's tenant has it.
	Service
)

const allRights = Run | Read | Approve | Operate

// A word is a right as it is written.
type word struct {
	right Rights
	text  string
}

// words are the rights that tokens may have.
var words = []word{{Run, "run"}, {Read, "read"}, {Approve, "approve"}, {Operate, "operate"}}

// ParseRights reads rights as they are written, each once and at least one.
func ParseRights(list []string) (Rights, error) {
	var rights Rights
	for _, s := range list {
		i := slices.IndexFunc(words, func(w word) bool { return w.text == s })
		switch {
		case i < 0:
			return 0, fmt.Errorf("%.64q is no right; there are %s", s, strings.Join(allRights.Words(), ", "))
		case rights&words[i].right != 0:
			return 0, fmt.Errorf("%q is there twice", s)
		}
		rights |= words[i].right
	}
	if rights == 0 {
		return 0, fmt.Errorf("there is no right; name some of %s", strings.Join(allRights.Words(), ", "))
	}
	return rights, nil
}

// Words are the rights as they are written.
func (r Rights) Words() []string {
	list := []string{}
	for _, w := range words {
		if r&w.right != 0 {
			list = append(list, w.text)
		}
	}
	return list
}

// String is for people.
func (r Rights) String() string {
	list := (r &^ Service).Words()
	if r&Service != 0 {
		list = append(list, "operate, for the operator's tenant")
	}
	return strings.Join(list, ", ")
}

// Lacks returns those of the rights that the caller does not have.
func (c Caller) Lacks(rights Rights) Rights {
	has := c.Rights & allRights
	if c.Tenant == "" && has&Operate != 0 {
		has |= Service
	}
	return rights &^ has
}

// May reports whether the caller has all of the rights.
func (c Caller) May(rights Rights) bool { return c.Lacks(rights) == 0 }

// Everyone stands for all tenants, where somebody who may looks at them. No tenant can
// have that name.
const Everyone = "all"

// Sees reports whether what belongs to a tenant is there for the caller.
func (c Caller) Sees(tenant string) bool { return c.Tenant == tenant || c.Tenant == Everyone }

// In is the caller at work for another tenant. Who may not is refused before.
func (c Caller) In(tenant string) Caller {
	c.elsewhere = c.elsewhere || tenant != c.Tenant
	c.Tenant = tenant
	return c
}

// Home is the caller's own tenant, whichever it is at work for.
func (c Caller) Home() string {
	if c.elsewhere {
		return "" // nobody else looks at others
	}
	return c.Tenant
}

// Alone reports whether the caller has the operator's token, beside whom there need be
// nobody.
func (c Caller) Alone() bool { return c.Home() == "" && c.Principal == operator }

// operator is the principal of the operator's token, and of no other.
const operator = "operator"

// Operator is the caller who has the operator's token.
func Operator() Caller { return Caller{Principal: operator, Rights: allRights} }

// Why the context of a call ends with its token: the causes of Tokens.Enter's context.
var (
	ErrRevoked = errors.New("the token was revoked")
	ErrExpired = errors.New("the token has expired")
)

// Ended returns why the token of a call is good no longer, nil while it is.
func Ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrRevoked) || errors.Is(cause, ErrExpired) {
		return cause
	}
	return nil
}

// callerKey is where the context of a call has its caller.
type callerKey struct{}

// Of returns who makes the call of a context, the zero Caller for nobody.
func Of(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

// With is the context of a call that a caller makes.
func With(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}
