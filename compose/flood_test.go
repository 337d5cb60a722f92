package compose_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// flood is what one sandbox can throw at its gate: queries as fast as they go,
// more connections than it may have, the longest hellos and request heads without
// an end, and garbage on every port. It goes on until the file stop is in the
// workspace, for two minutes at most.
const flood = attack + `
import os, random, time
end = time.time() + 120
def going(): return time.time() < end and not os.path.exists("stop")
def query(i):
    n = b"".join(bytes([len(l)]) + l for l in (b"x%d" % i, b"docs", b"example")) + b"\0"
    return struct.pack(">HHHHHH", i & 65535, 0x100, 1, 0, 0, 0) + n + b"\0\1\0\1"
def queries(payload):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    i = 0
    while going():
        for _ in range(500):
            i += 1
            try: s.sendto(payload(i), (gate, 53))
            except OSError: pass
    return i
def connections(port, payload):
    n, held = 0, []
    while going():
        s = socket.socket()
        s.settimeout(2)
        try:
            s.connect((gate, port))
            s.sendall(payload())
            n += 1
        except OSError: pass
        held.append(s)
        if len(held) > 400: held.pop(random.randrange(200)).close()
    return n
noise = lambda: random.randbytes(random.randrange(1, 2000))
hello = b"\x16\x03\1\x40\0\1\0\xea\x60" + bytes(16380) # the first quarter of 60,000 bytes
cut = b"".join(b"\x16\x03\1\0\1" + bytes([b]) for b in b"\1\0\xea\x60" + bytes(9000)) # the same, a byte a record
head = b"GET / HTTP/1.1\r\nHost: docs.example\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"x" * 400) for i in range(100))
work = [lambda: queries(query), lambda: queries(lambda i: noise()), lambda: connections(443, lambda: hello), lambda: connections(443, lambda: cut),
    lambda: connections(443, noise), lambda: connections(80, noise), lambda: connections(80, lambda: head), lambda: connections(53, noise)]
print("flooding", flush=True)
children = []
for i, w in enumerate(work):
    r, wr = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(wr, b"%d" % w())
        os._exit(0)
    os.close(wr)
    children.append((pid, r))
for i, (pid, r) in enumerate(children):
    print("work", i, os.read(r, 99).decode(), flush=True)
    os.waitpid(pid, 0)
E`

// TestFloodAndReloadsLeaveOthersAlone has one run flood the gate with all that it
// can make, and the gate take 1000 new allowlists, while a second run works and a
// third tries what it may not.
//
// probe: D20, S20, P2
// oracle: the second run's requests, all of which the far side answers; the third's,
// none of which it sees; the gate's process: its start, memory and descriptors
func TestFloodAndReloadsLeaveOthersAlone(t *testing.T) {
	gate := container(t, "gate", "")
	started := docker(t, "inspect", "-f", "{{.State.StartedAt}}", gate)
	output(t, "strict", `curl -fsS https://docs.example/ >&2`) // so that what is made once is there
	before := gateMetrics(t)
	seen := lastHit(t)

	dir := filepath.Join(st.root, "flood")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 10001, 10001); err != nil {
		t.Fatal(err)
	}
	req := bash("strict", flood)
	req.Config.CWD = dir
	flooder := begin(t, req)

	var worker, stranger api.Result
	var group sync.WaitGroup
	group.Go(func() {
		worker, _ = run(t, bash("strict", `for i in $(seq 40); do curl -fsS -m 30 https://docs.example/ >/dev/null && curl -fsS -m 30 http://docs.example/ >/dev/null && echo served; done`))
	})
	group.Go(func() {
		stranger, _ = run(t, bash("strict", attack+`
for i in range(40): print(f"try-{i}", tls(gate, 443, "refused.example"), http(gate, "HEAD / HTTP/1.1\r\nHost: refused.example\r\n\r\n"), udp(gate, 443))
E`))
	})
	reloads(t, 1000)
	group.Wait()
	if err := os.WriteFile(filepath.Join(dir, "stop"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	flooded := finish(t, flooder)

	judgeFlood(t, flooded, worker, stranger)
	for _, h := range hits(t, seen) {
		if h.Kind != "dns" && h.Name != "docs.example" || h.Kind == "dns" && !strings.HasSuffix(h.Name, "docs.example") {
			t.Errorf("the far side saw %+v", h)
		}
	}
	if now := docker(t, "inspect", "-f", "{{.State.StartedAt}}", gate); now != started {
		t.Errorf("the gate that started at %s has started again at %s", started, now)
	}
	// Its limit would end it before this could see more: what counts is how far a
	// flood of one run stays below, since as many as there are runs may come at once.
	if peak, most := peakMemory(t, gate), gateMemory(t)/4; peak > most {
		t.Errorf("the gate had %d MiB resident, want at most %d MiB", peak>>20, most>>20)
	}
	t.Logf("the gate had at most %d MiB resident; of the flood got through %s", peakMemory(t, gate)>>20, strings.ReplaceAll(flooded.Output, "\n", "; "))
	settles(t, before)
}

// judgeFlood looks at the results of the three runs.
func judgeFlood(t *testing.T, flooded, worker, stranger api.Result) {
	t.Helper()
	if got := strings.Count(worker.Output, "served"); got != 40 || !worker.Success {
		t.Errorf("beside the flood %d of 40 pairs of requests were served: %+v %q", got, worker.Error, worker.Output)
	}
	if got := strings.Count(stranger.Output, "HTTP/1.1 403 Forbidden"); got != 40 || strings.Contains(stranger.Output, "handshake") || strings.Contains(stranger.Output, "answer") {
		t.Errorf("beside the flood %d of 40 requests were refused:\n%s", got, stranger.Output)
	}
	wantRow(t, stranger.Receipt, "refused.example", account.KindTLS, firewall.ReasonNotListed)
	for _, r := range []api.Result{worker, stranger} {
		if i := slices.IndexFunc(r.Receipt.Hosts, func(h account.ReceiptHost) bool { return h.Reason == firewall.ReasonLimit }); i >= 0 {
			t.Errorf("the flood has cost another run a connection: %+v", r.Receipt.Hosts[i])
		}
	}
	if n := strings.Count(flooded.Output, "work "); !flooded.Success || n != 8 || strings.Contains(flooded.Output, " 0\n") {
		t.Errorf("control: of the flood ran %d of 8 parts: %+v\n%s", n, flooded.Error, flooded.Output)
	}
	if !slices.ContainsFunc(flooded.Receipt.Hosts, func(h account.ReceiptHost) bool { return h.Reason == firewall.ReasonLimit }) {
		t.Errorf("control: nothing of the flood was over a bound of the gate: %+v", flooded.Receipt.Hosts)
	}
}

// reloads has the gate take n allowlists, each unlike the one before.
func reloads(t *testing.T, n int) {
	t.Helper()
	file := filepath.Join(st.state, "gate", "allowlist.yaml")
	list, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put := func(list []byte) {
		if err := os.WriteFile(file+".new", list, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	other := bytes.Replace(list, []byte("    - {host: deb.example,"), []byte("    - {host: rpm.example,"), 1)
	if bytes.Equal(list, other) {
		t.Fatal("the allowlist of the tests has no entry deb.example")
	}
	c := &control.Client{Socket: gateSocket(t)}
	var last uint64
	for i := range n {
		put([][]byte{other, list}[i%2])
		health, err := c.Reload(t.Context())
		if err != nil {
			t.Fatalf("reload %d: %v", i, err)
		}
		if health.Generation <= last {
			t.Fatalf("reload %d: generation %d follows %d", i, health.Generation, last)
		}
		last = health.Generation
	}
}

// gateSocket is the path of the gate's control socket on this machine.
func gateSocket(t *testing.T) string {
	t.Helper()
	return filepath.Join(docker(t, "volume", "inspect", "-f", "{{.Mountpoint}}", stackName+"_control"), "control.sock")
}

// gateMetrics are the gate's metrics without labels.
func gateMetrics(t *testing.T) map[string]float64 {
	t.Helper()
	socket := gateSocket(t)
	web := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	resp, err := web.Get("http://gate/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

// settles waits until the gate holds no more than before a flood.
func settles(t *testing.T, before map[string]float64) {
	t.Helper()
	most := map[string]float64{
		"process_open_fds":              before["process_open_fds"] + 32, // cells, and pipes that are kept
		"go_goroutines":                 before["go_goroutines"] + 32,
		"go_memstats_heap_inuse_bytes":  before["go_memstats_heap_inuse_bytes"] + 32<<20,
		"sallyport_connections":         0,
		"sallyport_leases":              0,
		"go_memstats_stack_inuse_bytes": before["go_memstats_stack_inuse_bytes"] + 8<<20,
	}
	// Memory is given back by a collection. There is one in two minutes, and one
	// when enough was asked for, as by reloads.
	c := &control.Client{Socket: gateSocket(t)}
	for end := time.Now().Add(4 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		for range 20 {
			if _, err := c.Reload(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		now := gateMetrics(t)
		over := ""
		for name, limit := range most {
			if n, ok := now[name]; !ok || n > limit {
				over += fmt.Sprintf("%s is %.0f, want at most %.0f; ", name, n, limit)
			}
		}
		if over == "" {
			return
		}
		if time.Now().After(end) {
			t.Errorf("after the flood: %s", over)
			return
		}
	}
}
