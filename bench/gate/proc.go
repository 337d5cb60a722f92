package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of a process's times in /proc; the same on every Linux.
const tick = 10 * time.Millisecond

// cpuTime is what a process has used of the processor, in user and kernel mode.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("the server's times: %w", err)
	}
	// After the name, in parentheses: utime and stime are the 12th and 13th.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var sum time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the server's times: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// held is what a process holds.
type held struct {
	rss   float64 // KiB, resident
	fds   float64 // open descriptors
	pipes float64 // of these, ends of pipes
}

func holds(pid int) (held, error) {
	var h held
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return h, fmt.Errorf("the server's memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			if h.rss, err = strconv.ParseFloat(f[1], 64); err != nil {
				return h, fmt.Errorf("the server's memory: %w", err)
			}
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return h, fmt.Errorf("the server's descriptors: %w", err)
	}
	h.fds = float64(len(fds))
	for _, fd := range fds {
		if to, err := os.Readlink(dir + "/" + fd.Name()); err == nil && strings.HasPrefix(to, "pipe:") {
			h.pipes++
		}
	}
	return h, nil
}
