package run

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
	"sallyport/executor/backend"
)

// countersJob prints what the kernel counts in the sandbox's cgroups, of either
// version. Whatever the agent left is dead by then and the program is on the
// read-only root, so nobody comes between the counters and us.
var countersJob = wire.Job{
	ID: "counters",
	Argv: []string{
		"/bin/grep", "-sH", "",
		"/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events",
		"/sys/fs/cgroup/pids/pids.events", "/sys/fs/cgroup/pids.events",
	},
	Dir: "/",
}

// kernelTimeout bounds each question about a sandbox's limits.
const kernelTimeout = 5 * time.Second

// A toll is how many processes of a sandbox were killed for want of memory, and how
// often one more was refused.
type toll struct{ kills, refusals uint64 }

// limit names the limit that was run into, or nothing.
func (t toll) limit() string {
	switch {
	case t.kills > 0:
		return "memory"
	case t.refusals > 0:
		return "processes"
	}
	return ""
}

// since is what has come to t since before.
func (t toll) since(before toll) toll {
	return toll{t.kills - min(before.kills, t.kills), t.refusals - min(before.refusals, t.refusals)}
}

// toll asks the kernel, by way of PID 1, and where that is gone (a nil session) or does
// not know, the engine: some engines tell of a process that the kernel killed late, and
// some not at all.
func (x *execution) toll(sandbox backend.Sandbox, session *wire.Session) toll {
	var t toll
	known := false
	if session != nil {
		t, known = counters(session)
	}
	if !known && x.engineSaysOOM(sandbox) {
		t.kills = 1
	}
	return t
}

// limitHit says which limit of the sandbox a process of the job ran into that did not
// end well, or nil.
func (x *execution) limitHit(sandbox backend.Sandbox, session *wire.Session, j *job) *api.Error {
	details := map[string]any{"exitCode": j.exit.Code}
	if j.exit.Signal != "" {
		details = map[string]any{"signal": j.exit.Signal}
	}
	if j.err != nil {
		session = nil
	}
	code, t := api.CodeMemory, x.toll(sandbox, session).since(x.before)
	switch {
	case t.limit() == "":
		return nil
	case t.kills > 0:
		details["memoryLimitBytes"] = x.plan.Limits.MemoryBytes
	default:
		code, details["pidsLimit"] = api.CodePIDs, x.plan.Limits.PIDs
	}
	return &api.Error{Code: code, Message: "the sandbox ran out of " + t.limit(), Details: details}
}

func (x *execution) engineSaysOOM(sandbox backend.Sandbox) bool {
	ctx, cancel := context.WithTimeout(context.Background(), kernelTimeout)
	defer cancel()
	killed, err := sandbox.OOMKilled(ctx)
	if err != nil {
		x.log.Warn("the engine does not say whether memory ran out", "sandbox", sandbox.ID(), "error", err)
	}
	return killed
}

var (
	killCount    = regexp.MustCompile(`(?m)^/sys/fs/cgroup/memory\S*:oom_kill (\d+)$`)
	refusalCount = regexp.MustCompile(`(?m)^/sys/fs/cgroup/(?:pids/)?pids\.events:max (\d+)$`)
)

// counters returns what the kernel counts. known says whether the killed ones were
// found at all.
func counters(session *wire.Session) (t toll, known bool) {
	ctx, cancel := context.WithTimeout(context.Background(), kernelTimeout)
	defer cancel()
	var out []byte
	_, err := session.Run(ctx, countersJob, nil, wire.Handlers{Stdout: func(p []byte) {
		if len(out) < tailLength {
			out = append(out, p...)
		}
	}})
	if err != nil {
		return toll{}, false
	}
	t.kills, known = count(killCount, out)
	t.refusals, _ = count(refusalCount, out)
	return t, known
}

func count(pattern *regexp.Regexp, out []byte) (uint64, bool) {
	found := pattern.FindSubmatch(out)
	if found == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(found[1]), 10, 64)
	return n, err == nil
}
