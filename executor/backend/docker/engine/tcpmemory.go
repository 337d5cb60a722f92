package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport/executor/backend"
)

// The host's kernel has one amount of memory for the buffers of all TCP connections
// (tcp_mem, tcp(7)); a sandbox could take it with connections to itself. On control
// groups of version 2 buffers count as the sandbox's memory. Version 1 counts them
// apart, without a limit, and runc takes no notice of the engine's setting for one
// (KernelMemoryTCP) since 1.0, so it is set here, once the sandbox has its group and
// before anybody but PID 1 runs in it.
const (
	memoryGroups = "/sys/fs/cgroup/memory"
	tcpLimitFile = "memory.kmem.tcp.limit_in_bytes"
	// leastTCPMemory leaves any sandbox some connections at full speed.
	leastTCPMemory = 8 << 20
	// connections are those of a cell, to itself and to the gate; segment is what the
	// kernel counts for the longest.
	connections, segment = 4096 + 512, 72 << 10
)

// mayLimitTCP says whether the memory of TCP can be limited by version 1.
func mayLimitTCP() bool {
	return unix.Access(filepath.Join(memoryGroups, tcpLimitFile), unix.W_OK) == nil
}

// tcpLimit is the limit of a sandbox of these limits, in bytes: a sixteenth of its
// memory, which is what the host by default gives all connections of its own before it
// presses them.
func tcpLimit(l backend.Limits) int64 { return max(l.MemoryBytes/16, leastTCPMemory) }

// TCPMemory is how much of the host's memory for TCP a sandbox of these limits can
// take, in bytes. Beyond its limit the kernel still takes one segment for each
// connection, of which the keeper's filter and the gate allow a number.
func (e *Engine) TCPMemory(l backend.Limits) int64 {
	if e.limitsTCP {
		return tcpLimit(l) + connections*segment
	}
	return l.MemoryBytes
}

// TCPLimit is where the kernel begins to refuse the buffers of such a sandbox, in bytes.
func (e *Engine) TCPLimit(l backend.Limits) int64 {
	if e.limitsTCP {
		return tcpLimit(l)
	}
	return l.MemoryBytes
}

// LimitTCP bounds the memory that a started container takes for TCP.
func (e *Engine) LimitTCP(id string, l backend.Limits) error {
	if !e.limitsTCP {
		return nil
	}
	group, err := groupOf(id)
	if err == nil {
		err = os.WriteFile(filepath.Join(group, tcpLimitFile), strconv.AppendInt(nil, tcpLimit(l), 10), 0)
	}
	if err != nil {
		return fmt.Errorf("docker: limit the memory of TCP connections: %w", err)
	}
	return nil
}

// groupOf finds the control group of a container: first where engines put it.
func groupOf(id string) (string, error) {
	for _, dir := range []string{"docker/" + id, "system.slice/docker-" + id + ".scope"} {
		if dir = filepath.Join(memoryGroups, dir); exists(dir) {
			return dir, nil
		}
	}
	var found string
	err := filepath.WalkDir(memoryGroups, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has just gone
			return nil
		case err != nil:
			return err
		case entry.IsDir() && strings.Contains(entry.Name(), id):
			found = path
			return filepath.SkipAll
		}
		return nil
	})
	if err == nil && found == "" {
		err = fmt.Errorf("the control group of container %s is not below %s", id, memoryGroups)
	}
	return found, err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
