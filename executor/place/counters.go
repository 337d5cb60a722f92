package place

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"sallyport/entrypoint/wire"
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

// kernelTimeout bounds each question about what the kernel has counted.
const kernelTimeout = 5 * time.Second

// maxCounters is the most of the counters' text that is read, in bytes.
const maxCounters = 4 << 10

// Counters are how many processes of a sandbox were killed for want of memory, and how
// often one more was refused.
type Counters struct{ Killed, Refused uint64 }

// Limit names the limit that was run into, or nothing.
func (c Counters) Limit() string {
	switch {
	case c.Killed > 0:
		return "memory"
	case c.Refused > 0:
		return "processes"
	}
	return ""
}

// since is what has come to c since before.
func (c Counters) since(before Counters) Counters {
	return Counters{c.Killed - min(before.Killed, c.Killed), c.Refused - min(before.Refused, c.Refused)}
}

// Count returns what has been counted since the task entered, or since Count was called
// last, and begins anew.
func (p *Place) Count() Counters {
	now := p.counters(true)
	was := p.before
	p.before = now
	return now.since(was)
}

// Counted returns what has been counted since the task entered, or since Count was called
// last. Where PID 1 is known to be gone, only the engine is asked.
func (p *Place) Counted(alive bool) Counters { return p.counters(alive).since(p.before) }

// counters asks the kernel, by way of PID 1, and where that is gone or does not know, the
// engine: some engines tell of a process that the kernel killed late, and some not at all.
func (p *Place) counters(alive bool) (c Counters) {
	known := false
	if alive {
		c, known = readCounters(p.session)
	}
	if !known && p.engineSaysOOM() {
		c.Killed = 1
	}
	return c
}

func (p *Place) engineSaysOOM() bool {
	ctx, cancel := context.WithTimeout(context.Background(), kernelTimeout)
	defer cancel()
	killed, err := p.sandbox.OOMKilled(ctx)
	if err != nil {
		p.spec.Log.Warn("the engine does not say whether memory ran out", "sandbox", p.sandbox.ID, "error", err)
	}
	return killed
}

var (
	killCount    = regexp.MustCompile(`(?m)^/sys/fs/cgroup/memory\S*:oom_kill (\d+)$`)
	refusalCount = regexp.MustCompile(`(?m)^/sys/fs/cgroup/(?:pids/)?pids\.events:max (\d+)$`)
)

// readCounters returns what the kernel counts. known says whether the killed ones were
// found at all.
func readCounters(session *wire.Session) (c Counters, known bool) {
	ctx, cancel := context.WithTimeout(context.Background(), kernelTimeout)
	defer cancel()
	var out []byte
	_, err := session.Run(ctx, countersJob, nil, wire.Handlers{Stdout: func(p []byte) {
		if len(out) < maxCounters {
			out = append(out, p...)
		}
	}})
	if err != nil {
		return Counters{}, false
	}
	c.Killed, known = find(killCount, out)
	c.Refused, _ = find(refusalCount, out)
	return c, known
}

func find(pattern *regexp.Regexp, out []byte) (uint64, bool) {
	found := pattern.FindSubmatch(out)
	if found == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(found[1]), 10, 64)
	return n, err == nil
}
