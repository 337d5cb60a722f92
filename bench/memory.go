package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/docker/go-units"
)

// memory measures the stack's processes beside the API's peer, which does nothing.
// The name of each figure ends with when.
func (b *bench) memory(ctx context.Context, p *peer, when string) ([]figure, error) {
	theirs, err := footprintOf(ctx, p.id)
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, part := range []struct{ role, name string }{{"gate", "gate"}, {"executor", "executor"}, {"cell", "keeper of a cell"}} {
		ids, err := b.containers(ctx, part.role)
		if err != nil {
			return nil, err
		}
		all := make([]samples, 3)
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
			beside(part.name+", resident, "+when, "MiB", all[0], name, samples{theirs.rss}),
			beside(part.name+", cgroup, "+when, "MiB", all[1], name, samples{theirs.cgroup}))
		if part.role == "cell" {
			figures = append(figures, beside(part.name+", its shim on the engine, "+when, "MiB", all[2], name, samples{theirs.shim}))
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
	usage, err := docker(ctx, "stats", "--no-stream", "--format", "{{.MemUsage}}", id)
	if err != nil {
		return f, err
	}
	used, _, _ := strings.Cut(usage, " / ")
	f.cgroup, err = mebibytes(used)
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
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.TrimSpace(value)
	}
	return fields, nil
}

// mebibytes reads an amount of memory such as "1234 kB" or "12.5MiB", both of
// which count in powers of 1024.
func mebibytes(s string) (float64, error) {
	n, err := units.RAMInBytes(s)
	return float64(n) / (1 << 20), err
}
