package boundary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"sallyport/entrypoint/probe"
	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// around are surroundings without anything behind them.
func around() surroundings {
	return surroundings{
		nonce: "0123456789ab",
		here: backend.Cell{ID: "here", Holder: "aaaaaaaaaaaaaaaa", Prefix: netip.MustParsePrefix("172.30.0.0/28"),
			Gate: netip.MustParseAddr("172.30.0.2"), Sandbox: netip.MustParseAddr("172.30.0.3")},
		there: backend.Cell{ID: "there", Holder: "bbbbbbbbbbbbbbbb", Prefix: netip.MustParsePrefix("172.30.0.16/28"),
			Gate: netip.MustParseAddr("172.30.0.18"), Sandbox: netip.MustParseAddr("172.30.0.19")},
		beside: probe.CanaryHello{Port: 4001},
		onHost: probe.CanaryHello{Port: 4002, Addresses: []netip.Addr{
			netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fe80::1%br0"),
		}},
	}
}

// closed is what is seen where every wall stands.
func closed() *observation {
	s := around()
	p := newTrials(s)
	o := &observation{trials: p, herePrefix: s.here.Prefix, self: sealed(),
		fromHere: map[string]probe.Result{}, fromBeside: map[string]probe.Result{}, fromHost: map[string]probe.Result{}}
	for _, from := range []struct {
		trials  []trial
		results map[string]probe.Result
		hits    *[]probe.CanaryHit
	}{{p.here, o.fromHere, nil}, {p.beside, o.fromBeside, &o.cellHits}, {p.onHost, o.fromHost, &o.hostHits}} {
		for _, a := range from.trials {
			result := probe.Result{ID: a.probe.ID, Reached: a.control}
			switch a.probe.Kind {
			case probe.DNS, probe.DNSTCP:
				if a.verdict != nil {
					result.Reached, result.Detail = true, "NameError []"
				}
			case probe.HTTP:
				result.Reached, result.Detail = true, "HTTP/1.1 403 Forbidden"
			}
			from.results[a.probe.ID] = result
			if from.hits != nil && a.probe.Payload != "" {
				*from.hits = append(*from.hits, probe.CanaryHit{Proto: "tcp", Payload: a.probe.Payload})
			}
		}
	}
	for _, name := range p.names {
		o.hereReceipt.Hosts = append(o.hereReceipt.Hosts, account.ReceiptHost{Host: name, Verdict: firewall.Deny})
	}
	return o
}

func sealed() *probe.Self {
	return &probe.Self{
		PID: 7, UID: 10001, GID: 10001, Groups: []int{10001}, CapInh: none, CapPrm: none, CapEff: none, CapBnd: none, CapAmb: none,
		NoNewPrivs: true, Seccomp: 2, FDs: []int{0, 1, 2}, EnvNames: []string{"GODEBUG"},
		Mounts: []string{"/ overlay ro", "/proc proc rw", "/workspace ext4 rw", "/etc/hosts ext4 ro"}, Processes: 2,
	}
}

func failed(all []api.BoundaryFinding) []string {
	return api.BoundaryReport{Findings: all}.Failed()
}

// find returns the identifier of a trial of a finding.
func find(t *testing.T, o *observation, finding string) string {
	t.Helper()
	i := slices.IndexFunc(o.trials.here, func(a trial) bool { return a.finding == finding && !a.control })
	if i < 0 {
		t.Fatalf("nothing is tried for %q", finding)
	}
	return o.trials.here[i].probe.ID
}

func TestJudge(t *testing.T) {
	all, err := closed().judge()
	if err != nil || len(failed(all)) != 0 {
		t.Fatalf("where every wall stands: %q, %v", failed(all), err)
	}
	for _, f := range all {
		if f.Name == "" || f.Detail == "" {
			t.Errorf("finding %+v says nothing", f)
		}
	}
	reach := func(o *observation, id string) {
		r := o.fromHere[id]
		r.Reached, r.Detail = true, "answered"
		o.fromHere[id] = r
	}
	for name, test := range map[string]struct {
		open func(*testing.T, *observation)
		want string
	}{
		"the prober got an answer": {func(t *testing.T, o *observation) { reach(o, find(t, o, "host listener (tcp)")) }, "host listener (tcp)"},
		"only the canary on the host heard it": {func(t *testing.T, o *observation) {
			o.hostHits = append(o.hostHits, probe.CanaryHit{Proto: "udp", Payload: find(t, o, "host listener (broadcast)")})
		}, "host listener (broadcast)"},
		"only the other canary heard it": {func(t *testing.T, o *observation) {
			o.cellHits = append(o.cellHits, probe.CanaryHit{Proto: "udp", Payload: find(t, o, "other sandbox (udp)")})
		}, "other sandbox (udp)"},
		"a connection that said nothing": {func(_ *testing.T, o *observation) {
			o.hostHits = append(o.hostHits, probe.CanaryHit{Proto: "tcp", From: netip.MustParseAddrPort("172.30.0.3:5000")})
		}, "host listener (anything else from the cell)"},
		"the same, seen through an IPv6 socket": {func(_ *testing.T, o *observation) {
			o.cellHits = append(o.cellHits, probe.CanaryHit{Proto: "tcp", From: netip.MustParseAddrPort("[::ffff:172.30.0.3]:5000")})
		}, "other sandbox (anything else from the cell)"},
		"the embedded resolver answers": {func(t *testing.T, o *observation) { reach(o, find(t, o, "embedded resolver (udp)")) }, "embedded resolver (udp)"},
		"a name is answered":            {func(t *testing.T, o *observation) { reach(o, find(t, o, "gate refuses unlisted names (dns)")) }, "gate refuses unlisted names (dns)"},
		"the gate does not answer": {func(t *testing.T, o *observation) {
			id := find(t, o, "gate refuses internal names (dns)")
			o.fromHere[id] = probe.Result{ID: id, Detail: "sent, no answer"}
		}, "gate refuses internal names (dns)"},
		"a request is answered":      {func(t *testing.T, o *observation) { reach(o, find(t, o, "gate refuses unlisted names (http)")) }, "gate refuses unlisted names (http)"},
		"a tunnel is opened":         {func(t *testing.T, o *observation) { reach(o, find(t, o, "gate refuses unlisted names (tls)")) }, "gate refuses unlisted names (tls)"},
		"a mount is allowed":         {func(t *testing.T, o *observation) { reach(o, find(t, o, "kernel: mount")) }, "kernel: mount"},
		"a refusal is not on record": {func(_ *testing.T, o *observation) { o.hereReceipt.Hosts = o.hereReceipt.Hosts[1:] }, "gate records what it refused"},
		"something was allowed": {func(_ *testing.T, o *observation) {
			o.hereReceipt.Hosts = append(o.hereReceipt.Hosts, account.ReceiptHost{Host: "x.example", Verdict: firewall.Allow})
		}, "gate records what it refused"},
		"the other cell's gate heard it": {func(_ *testing.T, o *observation) {
			o.thereReceipt.Hosts = []account.ReceiptHost{{Host: o.trials.foreign[0], Verdict: firewall.Deny}}
		}, "gate heard nothing in another cell"},
		"the other cell's gate refused a stranger": {func(_ *testing.T, o *observation) {
			o.thereReceipt.Hosts = []account.ReceiptHost{{Verdict: firewall.Deny, Reason: firewall.ReasonForeignClient}}
		}, "gate heard nothing in another cell"},
		"the prober tells nothing of itself": {func(_ *testing.T, o *observation) { o.self = nil }, "process: facts"},
	} {
		t.Run(name, func(t *testing.T) {
			o := closed()
			test.open(t, o)
			all, err := o.judge()
			if err != nil || !slices.Equal(failed(all), []string{test.want}) {
				t.Errorf("got through %q, %v, want %q", failed(all), err, test.want)
			}
		})
	}
}

// TestControls loses one control after another: each time nothing is proven.
func TestControls(t *testing.T) {
	n := 0
	for list := range 3 {
		pick := func(o *observation) ([]trial, map[string]probe.Result, *[]probe.CanaryHit) {
			return [][]trial{o.trials.here, o.trials.beside, o.trials.onHost}[list],
				[]map[string]probe.Result{o.fromHere, o.fromBeside, o.fromHost}[list],
				[]*[]probe.CanaryHit{new([]probe.CanaryHit), &o.cellHits, &o.hostHits}[list]
		}
		trials, _, _ := pick(closed())
		for i, a := range trials {
			if !a.control {
				continue
			}
			n++
			o := closed()
			trials, results, hits := pick(o)
			id := trials[i].probe.ID
			results[id] = probe.Result{ID: id, Detail: "no route to host"}
			*hits = slices.DeleteFunc(*hits, func(h probe.CanaryHit) bool { return h.Payload == id })
			if all, err := o.judge(); err == nil || all != nil {
				t.Errorf("without the control %+v: %v, %v", a.probe, all, err)
			}
		}
	}
	if n < 11 {
		t.Errorf("%d controls", n)
	}
}

func TestJudgeSelf(t *testing.T) {
	for _, f := range judgeSelf(sealed()) {
		if !f.Passed {
			t.Errorf("%s: %s", f.Name, f.Detail)
		}
	}
	for want, change := range map[string]func(*probe.Self){
		"process: is not root":                    func(s *probe.Self) { s.UID = 0 },
		"process: no other group":                 func(s *probe.Self) { s.Groups = append(s.Groups, 0) },
		"process: no capabilities":                func(s *probe.Self) { s.CapBnd = "00000000a80425fb" },
		"process: no new privileges":              func(s *probe.Self) { s.NoNewPrivs = false },
		"process: system calls are filtered":      func(s *probe.Self) { s.Seccomp = 0 },
		"process: descriptors 0 to 2 only":        func(s *probe.Self) { s.FDs = append(s.FDs, 7) },
		"process: environment as given":           func(s *probe.Self) { s.EnvNames = append(s.EnvNames, "KEY") },
		"process: no sockets of the host":         func(s *probe.Self) { s.Sockets = []string{"/run/docker.sock"} },
		"process: root is read-only":              func(s *probe.Self) { s.RootWritable = true },
		"process: nothing of the host is mounted": func(s *probe.Self) { s.Mounts = append(s.Mounts, "/host ext4 rw") },
		"process: sees its own processes only":    func(s *probe.Self) { s.Processes = 200 },
	} {
		s := sealed()
		change(s)
		if got := failed(judgeSelf(s)); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q", want, got)
		}
	}
	if all := judgeSelf(&probe.Self{}); len(failed(all)) < 8 {
		t.Errorf("the zero value passes too much: failed are %q", failed(all))
	}
}

func TestListener(t *testing.T) {
	const hello = `{"hello": {"port": 9, "addresses": ["192.0.2.2"]}}` + "\n"
	const hit = `{"hit": {"proto": "udp", "from": "192.0.2.9:1", "payload": "x"}}` + "\n"
	const result = `{"result": {"id": "a"}}` + "\n"
	for name, test := range map[string]struct {
		out  string
		hits int
		want string // what an error holds
		told bool   // it ends only when it is told to
	}{
		"in order":               {hello + hit + hit, 2, "", true},
		"nothing reached it":     {hello, 0, "", true},
		"nothing":                {"", 0, "before it listened", false},
		"no JSON":                {"canary\n", 0, "read its hello", false},
		"a hit that is none":     {hello + "{", 0, "read what reached it", true},
		"a hit before the hello": {hit, 0, "does not begin with a hello", false},
		"neither":                {hello + "{}", 0, "neither a hit nor a result", false},
		"more results":           {hello + strings.Repeat(result, maxHits+probe.MaxProbes+1), 0, "more than can be", false},
		"more hits than can be":  {hello + strings.Repeat(hit, maxHits+probe.MaxProbes+1), 0, "more than can be", false},
	} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			defer r.Close()
			told := make(chan struct{})
			go func() {
				io.WriteString(w, test.out)
				if test.out != "" {
					<-told
				}
				w.Close()
			}()
			var hits []probe.CanaryHit
			l, err := newListener(t.Context(), closer(func() error { close(told); return nil }), r)
			if err == nil {
				if !test.told {
					<-l.done
				}
				hits, err = l.end(t.Context())
			}
			if test.want == "" && (err != nil || len(hits) != test.hits) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%d hits, error %v, want %d, %q", len(hits), err, test.hits, test.want)
			}
		})
	}
}

// A closer is a standard input to which nothing is written.
type closer func() error

func (c closer) Close() error              { return c() }
func (c closer) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestListenerProbes has a canary make trials: all of them have a result, or there is an error.
func TestListenerProbes(t *testing.T) {
	trials := make([]trial, probe.MaxProbes+1)
	for i := range trials {
		trials[i].probe.ID = strconv.Itoa(i)
	}
	for name, test := range map[string]struct {
		answer int // requests that are answered before it ends
		want   string
	}{
		"in order":        {2, ""},
		"it ends early":   {1, "the canary has ended"},
		"it says nothing": {0, "the canary has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			stdin, requests := io.Pipe()
			lines, stdout := io.Pipe()
			go func() {
				defer stdout.Close()
				w := json.NewEncoder(stdout)
				w.Encode(probe.CanaryLine{Hello: &probe.CanaryHello{Port: 9}})
				r, n := json.NewDecoder(stdin), 0
				for range test.answer {
					var request probe.Request
					if err := r.Decode(&request); err != nil {
						t.Error(err)
					}
					for _, p := range request.Probes {
						// It hears every other one, and has no answer to that.
						w.Encode(probe.CanaryLine{Hit: &probe.CanaryHit{Payload: "another's"}})
						if n++; n%2 == 0 {
							w.Encode(probe.CanaryLine{Hit: &probe.CanaryHit{Payload: p.ID}})
						} else {
							w.Encode(probe.CanaryLine{Result: &probe.Result{ID: p.ID, Reached: true}})
						}
					}
				}
				if test.answer == 2 {
					<-t.Context().Done() // it stays until it is told to end
				} else {
					r.Decode(new(probe.Request))
				}
			}()
			l, err := newListener(t.Context(), requests, lines)
			if err != nil {
				t.Fatal(err)
			}
			results, err := l.probe(t.Context(), trials)
			if test.want == "" && (err != nil || len(results) != len(trials)) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%d results, %v, want %q", len(results), err, test.want)
			}
		})
	}
}

// TestListenerThatTakesNothing: one that reads no request holds nobody up for longer than they wait.
func TestListenerThatTakesNothing(t *testing.T) {
	_, requests := io.Pipe()
	lines, stdout := io.Pipe()
	go json.NewEncoder(stdout).Encode(probe.CanaryLine{Hello: &probe.CanaryHello{Port: 9}})
	l, err := newListener(t.Context(), requests, lines)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if results, err := l.probe(ctx, []trial{{probe: probe.Probe{ID: "a"}}}); err == nil {
		t.Errorf("%v", results)
	}
}

// TestListenerThatDied shows that a canary which was gone early proves nothing.
func TestListenerThatDied(t *testing.T) {
	r, w := io.Pipe()
	go func() {
		io.WriteString(w, `{"hello": {"port": 9, "addresses": []}}`+"\n")
		w.Close()
	}()
	l, err := newListener(t.Context(), closer(r.Close), r)
	if err != nil {
		t.Fatal(err)
	}
	<-l.done
	if _, err := l.end(t.Context()); err == nil || !strings.Contains(err.Error(), "before it was told to") {
		t.Errorf("error %v", err)
	}
}

func TestListenerThatHangs(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newListener(ctx, closer(r.Close), r); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// FuzzProber reads what a hostile prober could print, in one piece and in pieces of any
// size. A second reader, which takes the lines apart by itself, has the same results.
func FuzzProber(f *testing.F) {
	trials := []trial{{probe: probe.Probe{ID: "a", Kind: probe.TCP}}, {probe: probe.Probe{ID: "b", Kind: probe.UDP}}}
	read := func(write func(*bounded) error) (map[string]probe.Result, error) {
		return collect(trials, func(_ []byte, _ []trial, take func(probe.Result)) error {
			var out bounded
			if err := write(&out); err != nil {
				return err
			}
			return out.results(take)
		})
	}
	f.Fuzz(func(t *testing.T, printed []byte) {
		results, err := read(func(out *bounded) error { _, err := out.Write(printed); return err })
		copied, failed := read(func(out *bounded) error {
			_, err := io.Copy(out, iotest.OneByteReader(bytes.NewReader(printed)))
			return err
		})
		if (err == nil) != (failed == nil) || !reflect.DeepEqual(results, copied) {
			t.Errorf("%q: %v, %v; in pieces %v, %v", printed, results, err, copied, failed)
		}
		if err != nil {
			return
		}
		for _, id := range []string{"a", "b"} {
			if results[id].ID != id {
				t.Errorf("no result for %s in %q", id, printed)
			}
		}
		second := map[string]probe.Result{}
		for line := range bytes.Lines(printed) {
			var r probe.Result
			if json.Unmarshal(line, &r) != nil {
				return // values that are not one a line, which are as good
			}
			second[r.ID] = r
		}
		if !reflect.DeepEqual(results, second) {
			t.Errorf("%q: %v, line by line %v", printed, results, second)
		}
	})
}

// TestProberIsBounded has a prober print without end, by either way into the buffer.
func TestProberIsBounded(t *testing.T) {
	for name, write := range map[string]func(io.Writer, io.Reader) (int64, error){
		"copied": io.Copy,
		"written": func(w io.Writer, r io.Reader) (n int64, err error) {
			for piece := make([]byte, 32<<10); err == nil; {
				var wrote int
				r.Read(piece)
				wrote, err = w.Write(piece)
				n += int64(wrote)
			}
			return n, err
		},
	} {
		var out bounded
		n, err := write(&out, io.LimitReader(zeroes{}, 4*maxOutput))
		if err == nil || n > maxOutput || out.taken.Cap() > 4*maxOutput {
			t.Errorf("%s: %d bytes were taken, %v; the bound is %d", name, n, err, maxOutput)
		}
		if n < maxOutput/2 {
			t.Errorf("control: %s: %d bytes were taken", name, n)
		}
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestTooSmall(t *testing.T) {
	host := probe.Tables{TCPBytes: 1 << 30, Connections: 65536}
	for _, test := range []struct {
		host, need probe.Tables
		want       []string
	}{
		{host, host, nil},
		{host, probe.Tables{TCPBytes: 1<<30 + 1, Connections: 1}, []string{"net.ipv4.tcp_mem"}},
		{host, probe.Tables{Connections: 65537}, []string{"net.netfilter.nf_conntrack_max"}},
		{probe.Tables{}, probe.Tables{TCPBytes: 1 << 40, Connections: 1 << 40}, nil}, // not known
	} {
		got := tooSmall(test.host, test.need)
		if len(got) != len(test.want) || len(got) > 0 && !strings.Contains(got[0], test.want[0]) {
			t.Errorf("%+v of %+v: %q, want %q", test.need, test.host, got, test.want)
		}
	}
}
