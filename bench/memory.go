package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"sallyport/bench/report"
)

// memory measures the stack's processes beside the API's peer, which does nothing.
// The name of each figure ends with when.
func (b *bench) memory(ctx context.Context, p *peer, when string) ([]report.Figure, error) {
	theirs, err := footprintOf(ctx, p.id)
	if err != nil {
		return nil, err
	}
	var figures []report.Figure
	for _, part := range []struct{ role, name string }{{"gate", "gate"}, {"executor", "executor"}, {"cell", "keeper of a cell"}} {
		ids, err := b.containers(ctx, part.role)
		if err != nil {
			return nil, err
		}
		all := make([]report.Samples, 3)
		for _, id := range ids {
			ours, err := footprintOf(ctx, id)
			if err != nil {
				return nil, err
			}
			for i, v := range []float64{ours.rss, ours.cgroup, ours.shim} {
				all[i] = append(all[i], v)
			}
		}
		const name = "bare net/http server"
		figures = append(figures,
			report.Beside(part.name+", resident, "+when, "MiB", all[0], name, report.Samples{theirs.rss}),
			report.Beside(part.name+", cgroup, "+when, "MiB", all[1], name, report.Samples{theirs.cgroup}))
		if part.role == "cell" {
			figures = append(figures, report.Beside(part.name+", its shim on the engine, "+when, "MiB", all[2], name, report.Samples{theirs.shim}))
		}
	}
	return figures, nil
}

// A footprint is what one container takes of the host's memory, in MiB.
type footprint struct {
	rss    float64 // its first process, with the pages of its program that others may share
	cgroup float64 // all that the kernel charges to it, without page cache that it can drop
	shim   float64 // resident: the engine's process that looks after it
}

func footprintOf(ctx context.Context, id string) (f footprint, err error) {
	pid, err := docker(ctx, "inspect", "--format", "{{.State.Pid}}", id)
	if err != nil {
		return f, err
	}
	status, err := readStatus(pid)
	if err != nil {
		return f, err
	}
	if f.rss, err = mebibytes(status["VmRSS"]); err != nil {
		return f, fmt.Errorf("read the memory of process %s: %w", pid, err)
	}
	shim, err := readStatus(status["PPid"])
	if err != nil {
		return f, err
	}
	if f.shim, err = mebibytes(shim["VmRSS"]); err != nil {
		return f, fmt.Errorf("read the memory of process %s: %w", status["PPid"], err)
	}
	groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return f, fmt.Errorf("read the control groups of process %s: %w", pid, err)
	}
	f.cgroup, err = charged("/sys/fs/cgroup", string(groups))
	return f, err
}

// readStatus reads /proc/PID/status of the host.
func readStatus(pid string) (map[string]string, error) {
	if _, err := strconv.ParseUint(pid, 10, 32); err != nil {
		return nil, fmt.Errorf("read the state of a process: %q is not a process id", pid)
	}
	data, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return nil, fmt.Errorf("read the state of a process, which takes the engine's own host: %w", err)
	}
	return fields(string(data), ":"), nil
}

// charged reads what the kernel charges to the memory group among groups, which is
// the content of /proc/PID/cgroup, without the page cache that is not in use; in MiB.
// Its own reading, because docker stats shows 0 for some engines and kernels.
func charged(root, groups string) (float64, error) {
	dir, usage, cache := "", "memory.current", "inactive_file"
	for line := range strings.Lines(groups) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(part) != 3:
			return 0, fmt.Errorf("read the control groups: %q is not one", line)
		case part[1] == "memory": // version 1, which has memory.current nowhere
			dir, usage, cache = filepath.Join(root, "memory", part[2]), "memory.usage_in_bytes", "total_inactive_file"
		case part[0] == "0" && dir == "":
			dir = filepath.Join(root, part[2])
		}
	}
	used, err := os.ReadFile(filepath.Join(dir, usage))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a control group: %w", err)
	}
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a control group: %w", err)
	}
	total, err := strconv.ParseInt(strings.TrimSpace(string(used)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the memory of a control group: %w", err)
	}
	unused, err := strconv.ParseInt(fields(string(stat), " ")[cache], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the page cache of a control group: %w", err)
	}
	return float64(total-unused) / (1 << 20), nil
}

// fields reads lines of a name, a separator and a value.
func fields(text, separator string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, separator)
		all[name] = strings.TrimSpace(value)
	}
	return all
}

// mebibytes reads an amount of memory as /proc writes it, such as "1234 kB".
func mebibytes(s string) (float64, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(s, " kB"), 10, 64)
	return float64(n) / 1024, err
}
