package boundary

import (
	"fmt"
	"slices"
	"strings"

	"sallyport/entrypoint/probe"
	"sallyport/executor/api"
)

// none is an empty capability set as the kernel writes it.
const none = "0000000000000000"

// mostProcesses is more than a sandbox shows while it is probed.
const mostProcesses = 16

// virtual are the file systems that hold nothing of the host's disk.
var virtual = []string{"proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2"}

// ours are the mounts that may come from the host's disk: the root of the image,
// the workspace, and files of the backend's own.
var ours = []string{"/", "/workspace", "/etc/resolv.conf", "/etc/hosts", "/etc/hostname", "/etc/passwd", "/etc/group"}

// judgeSelf judges what the prober found out about its own process. It comes from
// inside the sandbox, where nobody but us has run yet.
func judgeSelf(s *probe.Self) []api.BoundaryFinding {
	if s == nil {
		return []api.BoundaryFinding{{Name: "process: facts", Detail: "the prober tells nothing of itself"}}
	}
	var names []string
	for _, v := range jobEnv {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	others := slices.DeleteFunc(slices.Clone(s.Groups), func(g int) bool { return g == s.GID })
	foreign := slices.DeleteFunc(slices.Clone(s.Mounts), func(m string) bool {
		f := strings.Fields(m)
		return len(f) == 3 && (slices.Contains(ours, f[0]) || slices.Contains(virtual, f[1]))
	})
	var out []api.BoundaryFinding
	add := func(name string, passed bool, format string, args ...any) {
		out = append(out, api.BoundaryFinding{Name: "process: " + name, Passed: passed, Detail: clip(fmt.Sprintf(format, args...))})
	}
	add("is not root", s.UID > 0 && s.GID > 0, "user %d, group %d", s.UID, s.GID)
	add("no other group", len(others) == 0, "groups %v", s.Groups)
	add("no capabilities", s.CapInh == none && s.CapPrm == none && s.CapEff == none && s.CapBnd == none && s.CapAmb == none,
		"inheritable %s, permitted %s, effective %s, bounding %s, ambient %s", s.CapInh, s.CapPrm, s.CapEff, s.CapBnd, s.CapAmb)
	add("no new privileges", s.NoNewPrivs, "NoNewPrivs %v", s.NoNewPrivs)
	add("system calls are filtered", s.Seccomp == 2, "Seccomp %d", s.Seccomp)
	add("descriptors 0 to 2 only", slices.Equal(s.FDs, []int{0, 1, 2}), "descriptors %v", s.FDs)
	add("environment as given", slices.Equal(s.EnvNames, names), "variables %v", s.EnvNames)
	add("no sockets of the host", len(s.Sockets) == 0, "sockets %v", s.Sockets)
	add("root is read-only", !s.RootWritable, "writable: %v", s.RootWritable)
	add("nothing of the host is mounted", len(foreign) == 0 && len(s.Mounts) > 0, "foreign mounts %v of %d", foreign, len(s.Mounts))
	add("sees its own processes only", s.Processes > 0 && s.Processes <= mostProcesses, "%d processes", s.Processes)
	return out
}

func clip(s string) string {
	const most = 400
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
