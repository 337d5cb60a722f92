package compose_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// watches makes inotify instances until there are no more, and says how many.
const watches = `python3 - <<'E'
import ctypes, time
libc, n = ctypes.CDLL(None), 0
while n < 5000 and libc.inotify_init1(0) >= 0: n += 1
print("watches", n, flush=True)
time.sleep(%d)
E`

// TestLimitsOfAUserAreARunsOwn has a run use up what the kernel grants a user.
//
// probe: X21
// oracle: how much of the same a second run gets, beside the first
func TestLimitsOfAUserAreARunsOwn(t *testing.T) {
	first := begin(t, bash("strict", fmt.Sprintf(watches, 60)))
	second, _ := output(t, "strict", fmt.Sprintf(watches, 0))
	cancelRun(t, first)
	if second == "watches 0\n" || !strings.HasPrefix(second, "watches ") {
		t.Errorf("beside a run that watches all it may, another one has %q", second)
	}
}

// exchanges make 200 connections of their own, twice, with more than a second
// between, and end each first: the end that closes is the one whose port has to
// rest. They begin when the namespace has the ports of fewPorts.
const exchanges = attack + `
import time
def ports():
    first, last = open("/proc/sys/net/ipv4/ip_local_port_range").read().split()
    return int(last) - int(first) + 1
while ports() > 256:
    print("waiting", flush=True)
    time.sleep(0.2)
c = ssl._create_unverified_context()
for round in 1, 2:
    errors = []
    for i in range(200):
        try:
            with c.wrap_socket(socket.create_connection((gate, 443), 4), server_hostname="docs.example") as s:
                s.sendall(b"HEAD / HTTP/1.1\r\nHost: docs.example\r\n\r\n")
                while b"\r\n\r\n" not in s.recv(4096): pass
        except OSError as e: errors.append(str(e))
    print("round", round, len(errors), "failed", errors[:1], flush=True)
    time.sleep(1.5)
E`

// fewPorts leaves the network namespace of a container 256 ports for connections
// that it makes, until the test ends.
func fewPorts(t *testing.T, container string) {
	t.Helper()
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	pid := docker(t, "inspect", "-f", "{{.State.Pid}}", container)
	in := func(script string) string {
		out, err := exec.Command("nsenter", "-t", pid, "-n", "sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("in the namespace of %s: %s: %v\n%s", container, script, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	before := in("cat " + file)
	var first int // a cell's filter lets its own range through, and no other
	if _, err := fmt.Sscan(before, &first); err != nil {
		t.Fatalf("%s of %s: %q: %v", file, container, before, err)
	}
	in(fmt.Sprintf("echo %d %d >%s", first, first+255, file))
	t.Cleanup(func() { in("echo '" + before + "' >" + file) })
}

// TestPortsComeBack has a run make more connections than there are ports, at the
// gate and in its own namespace, which the next run of that cell gets as it is.
//
// probe: X22
// oracle: the run's connections, and a second run's
func TestPortsComeBack(t *testing.T) {
	id := begin(t, bash("strict", exchanges))
	keeper := strings.TrimPrefix(docker(t, "inspect", "-f", "{{.HostConfig.NetworkMode}}", container(t, "sandbox", id)), "container:")
	fewPorts(t, container(t, "gate", ""))
	fewPorts(t, keeper)
	res := finish(t, id)
	for _, want := range []string{"round 1 0 failed", "round 2 0 failed"} {
		if !strings.Contains(res.Output, want) {
			t.Errorf("want %q in %q", want, strings.ReplaceAll(res.Output, "waiting\n", ""))
		}
	}
	output(t, "strict", `curl -fsS https://docs.example/ >/dev/null`)
}
