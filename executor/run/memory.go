package run

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"sallyport/entrypoint"
	"sallyport/executor/backend"
)

// oomJob prints what the kernel counts in the sandbox's memory cgroup, of either
// version. Whatever the agent left is dead by then and the program is on the
// read-only root, so nobody comes between the counter and us.
var oomJob = entrypoint.Job{
	ID:   "memory",
	Argv: []string{"/bin/cat", "/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"},
	Dir:  "/",
}

// oomTimeout bounds each of the two questions.
const oomTimeout = 5 * time.Second

// ranOutOfMemory asks the kernel, by way of PID 1, and where that is gone or does
// not know, the engine: some engines tell of a process that the kernel killed
// late, and some not at all.
func (x *execution) ranOutOfMemory(sandbox backend.Sandbox, session *entrypoint.Session, gone bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), oomTimeout)
	defer cancel()
	if !gone {
		if kills, known := oomKills(ctx, session); known {
			return kills > 0
		}
	}
	ctx, cancelEngine := context.WithTimeout(context.Background(), oomTimeout)
	defer cancelEngine()
	killed, err := sandbox.OOMKilled(ctx)
	if err != nil {
		x.log.Warn("the engine does not say whether memory ran out", "sandbox", sandbox.ID(), "error", err)
	}
	return killed
}

var oomCount = regexp.MustCompile(`(?m)^oom_kill (\d+)$`)

func oomKills(ctx context.Context, session *entrypoint.Session) (kills uint64, known bool) {
	var out []byte
	_, err := session.Run(ctx, oomJob, nil, entrypoint.Handlers{Stdout: func(p []byte) {
		if len(out) < tailLength {
			out = append(out, p...)
		}
	}})
	found := oomCount.FindSubmatch(out)
	if err != nil || found == nil {
		return 0, false
	}
	kills, err = strconv.ParseUint(string(found[1]), 10, 64)
	return kills, err == nil
}
