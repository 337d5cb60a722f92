package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Value says of one dimension what may be had at most. The values of a dimension
// are a lattice: of any two there is the widest that is within both.
type Value interface {
	// Meet is the widest value within both. The other value is of the same type.
	Meet(Value) Value
	// LessOrEqual reports whether whatever this value allows the other allows, too.
	LessOrEqual(Value) bool
	fmt.Stringer
}

// A Dimension is one of the things that a policy bounds.
type Dimension int

// The dimensions, in the order in which they are told.
const (
	ProfileNames Dimension = iota // a Set of profiles that may be asked for
	SandboxMode                   // a Mode: the weakest
	Strength                      // an Isolation: the weakest
	Providers                     // a Set of providers
	Templates                     // a Set of templates
	Images                        // a Set of images
	Agents                        // a Set of agents
	Tiers                         // a Set of tiers
	Egress                        // a Set of the gate's policies
	GitHub                        // a Set of GitHub profiles
	Repositories                  // a Set of owner/name and owner/*
	ProviderKeys                  // a Set of names of variables
	Secrets                       // a Set of logical names
	Tasks                         // a Set of task types
	Gateways                      // a Set of hosts of MCP gateways
	Time                          // a Duration: how long a sandbox lives
	IdleTime                      // a Duration: how long it waits for its next task
	CostUSD                       // a Cost
	Tokens                        // a Count
	Approval                      // a Review
	dimensions
)

// keys are the words for the dimensions in the file of profiles.
var keys = [dimensions]string{
	ProfileNames: "profiles", SandboxMode: "mode", Strength: "isolation", Providers: "providers", Templates: "templates",
	Images: "images", Agents: "agents", Tiers: "tiers", Egress: "egress", GitHub: "github", Repositories: "repositories",
	ProviderKeys: "providerKeys", Secrets: "secrets", Tasks: "tasks", Gateways: "gateways", Time: "time", IdleTime: "idleTime",
	CostUSD: "costUsd", Tokens: "tokens", Approval: "approval",
}

func (d Dimension) String() string { return keys[d] }

// Bounds have a value for each dimension, nil where they do not narrow it.
type Bounds [dimensions]Value

// top is what nothing has narrowed yet.
var top = Bounds{
	ProfileNames: all, SandboxMode: None, Strength: Process, Providers: all, Templates: all, Images: all, Agents: all,
	Tiers: all, Egress: all, GitHub: all, Repositories: all, ProviderKeys: all, Secrets: all, Tasks: all, Gateways: all,
	Time: Duration(math.MaxInt64), IdleTime: Duration(math.MaxInt64), CostUSD: Cost(math.MaxInt64), Tokens: Count(math.MaxInt64),
	Approval: Unreviewed,
}

// nothing is the least.
var nothing = Bounds{
	ProfileNames: Set{}, SandboxMode: PerTask, Strength: Machine, Providers: Set{}, Templates: Set{}, Images: Set{}, Agents: Set{},
	Tiers: Set{}, Egress: Set{}, GitHub: Set{}, Repositories: Set{}, ProviderKeys: Set{}, Secrets: Set{}, Tasks: Set{}, Gateways: Set{},
	Time: Duration(0), IdleTime: Duration(0), CostUSD: Cost(0), Tokens: Count(0), Approval: Reviewed,
}

// A Mode says which tasks run in a sandbox, and how many share one. The zero Mode is
// the strictest.
type Mode int

// The modes, each stricter than the one below it.
const (
	PerTask         Mode = iota // a fresh sandbox for each sandboxed task
	WorkflowSession             // one for those of a workflow instance
	EffectfulTasks              // what has effects is sandboxed; an instance's tasks may share
	None                        // there is no sandbox
)

var modes = []string{"per-task", "workflow-session", "effectful-tasks", "none"}

func (m Mode) Meet(v Value) Value       { return lower(m, v) }
func (m Mode) LessOrEqual(v Value) bool { return m <= v.(Mode) }
func (m Mode) String() string           { return modes[m] }

// An Isolation says what keeps a sandbox from the host. The zero Isolation is the
// strongest.
type Isolation int

// The isolations, each stronger than the one below it.
const (
	Machine    Isolation = iota // a kernel of its own on virtual hardware
	UserKernel                  // a kernel of its own in user space, such as gVisor's
	Container                   // the host's kernel, namespaces and an engine's limits
	Process                     // the host's kernel and namespaces of a plain process
)

var isolations = []string{"machine", "user-kernel", "container", "process"}

func (i Isolation) Meet(v Value) Value       { return lower(i, v) }
func (i Isolation) LessOrEqual(v Value) bool { return i <= v.(Isolation) }
func (i Isolation) String() string           { return isolations[i] }

// A Review says what somebody has to approve first. The zero Review is the strictest.
type Review int

// The reviews, each stricter than the one below it.
const (
	EachReviewed Review = iota // the profile, and each task of its runs
	Reviewed                   // the profile
	Unreviewed
)

var reviews = []string{"per-task", "required", "none"}

func (r Review) Meet(v Value) Value       { return lower(r, v) }
func (r Review) LessOrEqual(v Value) bool { return r <= v.(Review) }
func (r Review) String() string           { return reviews[r] }

// A Duration bounds a time. Where nothing does it is the longest of its type.
type Duration time.Duration

func (d Duration) Meet(v Value) Value       { return lower(d, v) }
func (d Duration) LessOrEqual(v Value) bool { return d <= v.(Duration) }
func (d Duration) String() string           { return amount(int64(d), time.Duration(d).String()) }

// A Cost bounds what models may cost, in millionths of a US dollar.
type Cost int64

func (c Cost) Meet(v Value) Value       { return lower(c, v) }
func (c Cost) LessOrEqual(v Value) bool { return c <= v.(Cost) }
func (c Cost) String() string {
	return amount(int64(c), "$"+strconv.FormatFloat(c.USD(), 'f', -1, 64))
}

// A Count bounds a number.
type Count int64

func (c Count) Meet(v Value) Value       { return lower(c, v) }
func (c Count) LessOrEqual(v Value) bool { return c <= v.(Count) }
func (c Count) String() string           { return amount(int64(c), strconv.FormatInt(int64(c), 10)) }

// USD is the cost in dollars.
func (c Cost) USD() float64 { return float64(c) / 1e6 }

func amount(n int64, text string) string {
	if n == math.MaxInt64 {
		return "unlimited"
	}
	return text
}

// lower is the meet of a chain.
func lower[T interface {
	cmp.Ordered
	Value
}](a T, b Value) Value {
	return min(a, b.(T))
}

// A Set holds names, of which "owner/*" stands for all that begin with "owner/". The
// zero Set is empty.
type Set struct {
	all   bool // every name there is
	names []string
}

var all = Set{all: true}

// Of is the set of these names.
func Of(names ...string) Set { return Set{names: names} }

// Meet has the names in the order of v, which narrows, as far as it has one.
func (s Set) Meet(v Value) Value {
	t := v.(Set)
	switch {
	case s.all:
		return t
	case t.all:
		return s
	}
	var met Set
	for _, b := range t.names {
		for _, a := range s.names {
			switch {
			case covers(a, b):
				met.add(b)
			case covers(b, a):
				met.add(a)
			}
		}
	}
	return met
}

func (s *Set) add(name string) {
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
}

// LessOrEqual reports whether each name of s is in v.
func (s Set) LessOrEqual(v Value) bool {
	t := v.(Set)
	return t.all || !s.all && !slices.ContainsFunc(s.names, func(n string) bool { return !t.Has(n) })
}

// Has reports whether name, which may be "owner/*", is in s.
func (s Set) Has(name string) bool {
	return s.all || slices.ContainsFunc(s.names, func(n string) bool { return covers(n, name) })
}

// List are the names: the one word "all" for every name, and never nil.
func (s Set) List() []string {
	if s.all {
		return []string{wordAll}
	}
	return append([]string{}, s.names...)
}

func (s Set) String() string {
	switch {
	case s.all:
		return wordAll
	case len(s.names) == 0:
		return wordNone
	}
	return "[" + strings.Join(s.names, ", ") + "]"
}

func covers(pattern, name string) bool {
	owner, wild := strings.CutSuffix(pattern, "*")
	return pattern == name || wild && strings.HasSuffix(owner, "/") && strings.HasPrefix(name, owner)
}
