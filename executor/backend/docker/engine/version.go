package engine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
)

// minAPI is the oldest API that has what this package needs; engine 20.10.
const minAPI = "1.41"

const (
	componentEngine = "engine"
	componentRunc   = "runc"
)

// A Verdict says what a finding means for running sandboxes on an engine.
type Verdict string

// The verdicts.
const (
	Warn   Verdict = "warn"   // run, and tell the operator
	Refuse Verdict = "refuse" // do not run
)

// A Finding is something that speaks against an engine.
type Finding struct {
	ID      string // of an advisory or an issue, or a word for what is missing
	Verdict Verdict
	Text    string // what it means, and what to do
	Source  string // URL; empty for what the engine itself reports
}

// A Report is what is known of an engine.
type Report struct {
	Engine, API, Runc string // versions
	Findings          []Finding
}

// String names the engine in one line.
func (r Report) String() string {
	return fmt.Sprintf("docker %s (API %s, runc %s)", r.Engine, r.API, r.Runc)
}

// Err is an error that names every finding for which sandboxes must not run.
func (r Report) Err() error {
	var refused []string
	for _, f := range r.Findings {
		if f.Verdict == Refuse {
			refused = append(refused, f.ID+": "+f.Text)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	return fmt.Errorf("%s cannot hold sandboxes: %s", r, strings.Join(refused, "; "))
}

// Check asks the engine for its version and abilities and says what is known
// against it.
func (e *Engine) Check(ctx context.Context) (Report, error) {
	v, err := e.API.ServerVersion(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("docker: ask the engine for its version: %w", err)
	}
	return judge(v, e.info, e.limitsTCP), nil
}

// judge is Check without the asking.
func judge(v types.Version, info system.Info, limitsTCP bool) Report {
	r := Report{Engine: v.Version, API: v.APIVersion, Runc: "unknown"}
	for _, c := range v.Components {
		if c.Name == componentRunc {
			r.Runc = c.Version
		}
	}
	r.Findings = abilities(v, info)
	if info.CgroupVersion == "1" && !limitsTCP {
		r.Findings = append(r.Findings, Finding{ID: "tcp-memory", Verdict: Warn, Text: "the executor cannot write to " + memoryGroups +
			" of the host: one sandbox can take all memory that the host has for TCP connections; mount it there"})
	}
	for _, d := range defects {
		version := r.Engine
		if d.component == componentRunc {
			version = r.Runc
		}
		if d.affects(version) {
			r.Findings = append(r.Findings, Finding{d.id, d.verdict, d.text, d.source})
		}
	}
	return r
}

// abilities are the findings that need no table: what the engine says it cannot do.
func abilities(v types.Version, info system.Info) []Finding {
	var out []Finding
	add := func(found bool, verdict Verdict, id, text string) {
		if found {
			out = append(out, Finding{ID: id, Verdict: verdict, Text: text})
		}
	}
	option := func(name string) bool {
		return slices.ContainsFunc(info.SecurityOptions, func(o string) bool {
			return o == name || strings.HasPrefix(o, "name="+name+",") || o == "name="+name
		})
	}
	add(v.APIVersion == "" || versions.LessThan(v.APIVersion, minAPI), Refuse, "api",
		"the engine speaks API "+v.APIVersion+", "+minAPI+" (engine 20.10) is needed")
	add(info.OSType != "linux", Refuse, "os", "the engine runs "+info.OSType+" containers, not linux")
	add(!option("seccomp"), Refuse, "seccomp", "the engine does not support seccomp")
	add(option("rootless"), Refuse, "rootless",
		"a rootless engine has no address of its own to keep from sandboxes and may not enforce limits")
	add(option("userns"), Refuse, "userns-remap",
		"the engine remaps users, so that the agent would not own its workspace")
	add(!info.MemoryLimit, Refuse, "memory", "the engine cannot limit memory")
	add(!info.PidsLimit, Refuse, "pids", "the engine cannot limit processes")
	add(!info.CPUCfsQuota, Refuse, "cpu", "the engine cannot limit cpu time")
	add(!info.SwapLimit, Warn, "swap", "the engine cannot limit swap: a sandbox may use swap beyond its memory limit")
	return out
}

// affects says whether a version lies in one of the ranges. A version that is none
// is affected by everything: it cannot be shown not to be.
func (d defect) affects(version string) bool {
	v, ok := parseVersion(version)
	if !ok {
		return true
	}
	return slices.ContainsFunc(d.ranges, func(r versionRange) bool {
		from, _ := parseVersion(r.from) // the zero version for an open range
		before, ok := parseVersion(r.before)
		return ok && slices.Compare(v, from) >= 0 && slices.Compare(v, before) < 0
	})
}

// parseVersion takes the numbers at the head of a version such as
// 20.10.24+dfsg1 or 1.1.5+ds1-1. A pre-release counts as its release.
func parseVersion(s string) ([]int, bool) {
	s = strings.TrimPrefix(s, "v")
	if end := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		s = s[:end]
	}
	var out []int
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return make([]int, 3), false
		}
		out = append(out, n)
	}
	for len(out) < 3 {
		out = append(out, 0)
	}
	return out, true
}
