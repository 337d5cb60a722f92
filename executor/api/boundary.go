package api

import "time"

// BoundaryReport says what came of the attempts to get out of a real cell: the
// answer to POST /v1/boundary/check.
type BoundaryReport struct {
	// Passed is true where every probe was held; with it runs may start.
	Passed    bool              `json:"passed"`
	Engine    string            `json:"engine"` // name and version of what isolates
	CheckedAt time.Time         `json:"checkedAt"`
	Findings  []BoundaryFinding `json:"findings"`
	// Warnings say what of the host's kernel is too small for all runs together: no
	// way out, but one in which a run can be felt by others.
	Warnings []string `json:"warnings,omitempty"`
}

// A BoundaryFinding is the outcome of one probe.
type BoundaryFinding struct {
	Name   string `json:"name"`
	Passed bool   `json:"passed"`
	Detail string `json:"detail"` // what was seen
}

// Failed returns the names of the probes that got through.
func (r BoundaryReport) Failed() []string {
	var names []string
	for _, f := range r.Findings {
		if !f.Passed {
			names = append(names, f.Name)
		}
	}
	return names
}
