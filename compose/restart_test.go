package compose_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sallyport/executor/api"
)

// persistent goes on trying to get out and writes what came of each round, as a
// line of JSON, into the file rounds of its workspace. %d and %d are the ports of
// the host's listeners, %q its addresses, %q another sandbox.
const persistent = attack + `
import json, time
T, U, hosts, other = %d, %d, %q.split(), %q
socket.setdefaulttimeout(1)
lan, wan = %q, %q
device = [(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0"), (socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)]
def round():
    got = {"allowed": tls(gate, 443, "docs.example"), "refused": tls(gate, 443, "refused.example")}
    for a in hosts + [gate.rsplit(".", 1)[0] + "." + str(int(gate.rsplit(".", 1)[1]) - 1)]:
        got["tcp " + a], got["udp " + a], got["device " + a] = tcp(a, T), udp(a, U), udp(a, U, opts=device)
    got["multicast"] = udp("224.0.0.1", U)
    got["broadcast"] = udp("255.255.255.255", U, opts=[(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)])
    for a in (lan, wan):
        for p in (22, 53, 443): got[f"tcp {a}:{p}"] = tcp(a, p)
        for p in (53, 443): got[f"udp {a}:{p}"] = udp(a, p)
    got["other sandbox"], got["engine's resolver"] = tcp(other, 8000), udp("127.0.0.11", 53)
    return got
print("started", flush=True)
while True:
    with open("rounds", "a") as f: f.write(json.dumps(round()) + "\n")
    time.sleep(0.2)
E`

// A prisoner is a run that goes on trying to get out, beside another run that
// serves what it could reach.
type prisoner struct {
	id      string
	file    string
	reached func() string // what the host's listeners saw
	hit     int
	judged  int // rounds that have been looked at
}

// imprison starts both on the second engine.
func imprison(t *testing.T, e *secondEngine, name string) *prisoner {
	t.Helper()
	var tcpPort, udpPort int
	var addrs []string
	p := &prisoner{}
	err := within(e.ns, func() error {
		tcpPort, udpPort, p.reached = hostListeners(t, 0)
		addrs = hostAddresses(t)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The control: an ordinary container of this engine does reach its host.
	docker(t, "run", "--rm", "--entrypoint", "bash", "sallyport/agent:dev", "-c", fmt.Sprintf("timeout 5 head -c 3 < /dev/tcp/%s/%d", addrs[0], tcpPort))
	if p.reached() == "" {
		t.Fatal("control: an ordinary container did not reach the host's listener")
	}
	server := begin(t, bash("strict", `python3 -m http.server 8000 >/dev/null 2>&1 & echo started; sleep 600`))
	cell := strings.TrimPrefix(docker(t, "inspect", "-f", "{{.HostConfig.NetworkMode}}", container(t, "sandbox", server)), "container:")
	other := docker(t, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", cell)

	dir := filepath.Join(st.root, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 10001, 10001); err != nil {
		t.Fatal(err)
	}
	p.hit = lastHit(t)
	req := bash("strict", fmt.Sprintf(persistent, tcpPort, udpPort, strings.Join(addrs, " "), other, lan+".10", wan+".10"))
	req.Config.CWD = dir
	p.id, p.file = begin(t, req), filepath.Join(dir, "rounds")
	return p
}

// rounds are what the prisoner has written.
func (p *prisoner) rounds(t *testing.T) (all []map[string]string) {
	t.Helper()
	b, err := os.ReadFile(p.file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var round map[string]string
		if json.Unmarshal([]byte(line), &round) == nil { // not one that is being written
			all = append(all, round)
		}
	}
	return all
}

// holds waits for two whole rounds of the prisoner and fails the test if it, or
// one before that nobody has looked at, got anywhere. gated says whether the gate
// serves it still.
func (p *prisoner) holds(t *testing.T, when string, gated bool) {
	t.Helper()
	want := len(p.rounds(t)) + 3 // the first of them may have begun before
	for end := time.Now().Add(2 * time.Minute); len(p.rounds(t)) < want; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: the prisoner makes no more rounds", when)
		}
	}
	p.judge(t, when)
	all := p.rounds(t)
	if last := all[len(all)-1]; gated && last["allowed"] != "handshake" {
		t.Errorf("%s: the allowed host answers %q, want a handshake", when, last["allowed"])
	}
}

// judge looks at the rounds that nobody has looked at.
func (p *prisoner) judge(t *testing.T, when string) {
	t.Helper()
	all := p.rounds(t)
	for _, round := range all[p.judged:] {
		for what, got := range round {
			if got == "answer" || got == "handshake" && what != "allowed" {
				t.Errorf("%s: %s got through: %s", when, what, got)
			}
		}
	}
	p.judged = len(all)
	if got := p.reached(); got != "" {
		t.Errorf("%s: the host's listeners saw %s", when, got)
	}
}

// TestSecondEngine takes from under a run, one after another, the host's packet
// filter and the engine. Before that, names lead to the addresses of its host.
//
// probe: N14, L2
// oracle: listeners of the engine's host, the far side's canaries and a server in another
// sandbox, none of which the run may reach; its own notes, which say that it tried
func TestSecondEngine(t *testing.T) {
	e := startSecondEngine(t)
	// probe: R7
	t.Run("own addresses", func(t *testing.T) { ownAddresses(t, e) })

	p := imprison(t, e, "first")
	p.holds(t, "before", true)

	for _, table := range []string{"filter", "nat", "mangle", "raw"} {
		e.command(t, "iptables", "-t", table, "-F")
	}
	e.command(t, "iptables", "-P", "FORWARD", "ACCEPT")
	if rules := e.command(t, "iptables-save"); strings.Contains(rules, "\n-A ") || strings.Contains(rules, "FORWARD DROP") {
		t.Fatalf("the packet filter has still rules:\n%s", rules)
	}
	p.holds(t, "with the host's packet filter flushed", true)
	p.noHits(t)

	sandbox := container(t, "sandbox", p.id)
	e.stop(t, syscall.SIGKILL)
	p.holds(t, "with the engine killed", false)
	e.start(t)
	p.ends(t, "after the engine was killed", sandbox)

	p = imprison(t, e, "second")
	p.holds(t, "after the engine came back", true)
	sandbox = container(t, "sandbox", p.id)
	e.stop(t, syscall.SIGTERM)
	e.start(t)
	p.ends(t, "after the engine was restarted", sandbox)
}

// noHits fails the test if a canary of the far side saw anything. A far side that
// was started again has forgotten all.
func (p *prisoner) noHits(t *testing.T) {
	t.Helper()
	for _, h := range hits(t, p.hit) {
		if h.Kind == "tcp" || h.Kind == "udp" || h.Kind == "tls" && h.Name != "docs.example" {
			t.Errorf("the far side saw %+v", h)
		}
	}
}

// ends fails the test unless the run has ended without success, its sandbox is
// gone, it got nowhere until then, and the next run works.
func (p *prisoner) ends(t *testing.T, when, sandbox string) {
	t.Helper()
	ready(t)
	p.judge(t, when)
	res := finish(t, p.id)
	// An engine that is told to end ends the executor in order, which may be the
	// first to say so; another try is worth it in any case.
	codes := []api.Code{api.CodeLost, api.CodeGateUnavailable, api.CodeCancelled}
	if res.Success || res.Error == nil || !slices.Contains(codes, res.Error.Code) || !res.Error.Retryable {
		t.Errorf("%s: the run ended with success=%v %+v, want it lost, and worth another try", when, res.Success, res.Error)
	}
	if left := docker(t, "ps", "-aq", "--no-trunc", "--filter", "id="+sandbox); left != "" {
		t.Errorf("%s: the sandbox is still there", when)
	}
	made := len(p.rounds(t))
	if out, _ := output(t, "strict", `curl -fsS https://docs.example/`); !strings.Contains(out, "allows") {
		t.Errorf("%s: the next run printed %q", when, out)
	}
	if now := len(p.rounds(t)); now != made {
		t.Errorf("%s: the agent goes on, with %d rounds after %d", when, now, made)
	}
}
