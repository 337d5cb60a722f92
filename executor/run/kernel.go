package run

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"sallyport/entrypoint"
	"sallyport/executor/api"
	"sallyport/executor/backend"
)

// countersJob prints what the kernel counts in the sandbox's cgroups, of either
// version. Whatever the agent left is dead by then and the program is on the
// read-only root, so nobody comes between the counters and us.
var countersJob = entrypoint.Job{
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

// limitHit says which limit of the sandbox a process ran into that did not end
// well, or nil. It asks the kernel, by way of PID 1, and where that is gone or
// does not know, the engine: some engines tell of a process that the kernel
// killed late, and some not at all.
func (x *execution) limitHit(sandbox backend.Sandbox, session *entrypoint.Session, j *job) *api.Error {
	var kills, refusals uint64
	known := false
	if j.err == nil {
		kills, refusals, known = counters(session)
	}
	if !known && x.engineSaysOOM(sandbox) {
		kills = 1
	}
	details := map[string]any{"exitCode": j.exit.Code}
	if j.exit.Signal != "" {
		details = map[string]any{"signal": j.exit.Signal}
	}
	switch {
	case kills > 0:
		details["memoryLimitBytes"] = x.plan.Limits.MemoryBytes
		return &api.Error{Code: api.CodeMemory, Message: "the sandbox ran out of memory", Details: details}
	case refusals > 0:
		details["pidsLimit"] = x.plan.Limits.PIDs
		return &api.Error{Code: api.CodePIDs, Message: "the sandbox ran out of processes", Details: details}
	}
	return nil
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

// counters returns how many processes were killed for want of memory, and how
// often one more was refused. known says whether the first was found at all.
func counters(session *entrypoint.Session) (kills, refusals uint64, known bool) {
	ctx, cancel := context.WithTimeout(context.Background(), kernelTimeout)
	defer cancel()
	var out []byte
	_, err := session.Run(ctx, countersJob, nil, entrypoint.Handlers{Stdout: func(p []byte) {
		if len(out) < tailLength {
			out = append(out, p...)
		}
	}})
	if err != nil {
		return 0, 0, false
	}
	kills, known = count(killCount, out)
	refusals, _ = count(refusalCount, out)
	return kills, refusals, known
}

func count(pattern *regexp.Regexp, out []byte) (uint64, bool) {
	found := pattern.FindSubmatch(out)
	if found == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(found[1]), 10, 64)
	return n, err == nil
}
