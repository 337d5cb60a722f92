// Package probes is the catalogue of what an attacker tries against sallyport,
// and finds the tests that try each of it.
//
// A test says which probes it makes in the last paragraph of its doc comment:
//
//	// TestNames asks for names of all kinds.
//	//
//	// probe: D1, D13
//	// oracle: what on the far side shows it, and a fooled test would not see
//	func TestNames(t *testing.T) {
//
// and, where a row of its table or a subtest is the one, at the end of its first
// line, or alone on the line above it; there it holds for the rows that follow,
// too, up to the next comment or empty line:
//
//	{"any query", dns.TypeANY}, // probe: D5
//
// make probes prints both; TestMarks holds them to each other. A mark says that a test tries something, not that it tries
// it well: that is for who reads it to judge.
package probes

import (
	"fmt"
	"strings"
)

// A Probe is one thing that an attacker tries.
type Probe struct {
	ID    string // the group's letter and a number, such as "D5"
	Tried string
	Must  string // what must happen then

	// Residual, if set, is how the entry below Residuals begins that says why this
	// stays possible. No test is wanted then.
	Residual string
}

// A Group is a set of probes of one kind.
type Group struct {
	Letter string
	Title  string
	Probes []Probe
}

// Check returns what is wrong with a catalogue and the tests found for it: a
// mark of a probe that there is none of, a test without an oracle, a probe
// without a test.
func Check(groups []Group, tests []Test) error {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }

	known := map[string]bool{}
	for _, g := range groups {
		for _, p := range g.Probes {
			switch {
			case !strings.HasPrefix(p.ID, g.Letter) || known[p.ID]:
				fault("%s is twice in the catalogue, or in another group", p.ID)
			case p.Tried == "" || p.Must == "":
				fault("%s does not say what is tried and what must happen", p.ID)
			}
			known[p.ID] = true
		}
	}
	made := map[string]bool{}
	for _, t := range tests {
		if t.Oracle == "" {
			fault("%s: %s has a mark, and no oracle in its doc comment", t.File, t.Name)
		}
		for _, m := range t.Marks {
			if !known[m.Probe] {
				fault("%s: %s marks %s, which the catalogue does not have", t.File, t.Name, m.Probe)
			}
			made[m.Probe] = true
		}
	}
	for _, g := range groups {
		for _, p := range g.Probes {
			if !made[p.ID] && p.Residual == "" {
				fault("%s has no test: %s", p.ID, p.Tried)
			}
		}
	}
	if faults != nil {
		return fmt.Errorf("probes:\n%s", strings.Join(faults, "\n"))
	}
	return nil
}
