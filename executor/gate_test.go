package executor_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// A testGate speaks the gate's control API on a unix socket, to the real client,
// and listens in no cell: the addresses of the test's cells exist nowhere.
type testGate struct {
	t      testing.TB
	socket string

	mu      sync.Mutex
	server  *http.Server
	cells   map[string]*testLease
	refuse  []control.Problem // the next leases are refused with these
	granted []control.Lease
	changes int    // of the policy strict
	denying string // why it denies everything; empty if it does not
}

type testLease struct {
	control.Cell
	ledger  *account.Ledger
	records []account.Record
	changed chan struct{}
	over    bool
}

func startGate(t testing.TB) *testGate {
	dir, err := os.MkdirTemp("", "sp-gate-") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	g := &testGate{t: t, socket: filepath.Join(dir, "control.sock")}
	g.start()
	t.Cleanup(func() {
		g.stop()
		os.RemoveAll(dir)
	})
	return g
}

func (g *testGate) start() {
	ln, err := net.Listen("unix", g.socket)
	if err != nil {
		g.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", g.health)
	mux.HandleFunc("PUT /v1/cells/{id}", g.lease)
	mux.HandleFunc("DELETE /v1/cells/{id}", g.release)
	mux.HandleFunc("GET /v1/decisions", g.decisions)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cells = map[string]*testLease{}
	g.server = &http.Server{Handler: mux}
	go g.server.Serve(ln)
}

// stop ends the gate as a kill would: connections break, leases are gone.
func (g *testGate) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.server.Close()
	g.cells = map[string]*testLease{}
}

func (g *testGate) leases() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.cells)
}

// refuseNext has the next leases refused.
func (g *testGate) refuseNext(problems ...control.Problem) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = problems
}

// decide makes a decision in every leased cell.
func (g *testGate) decide(r account.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.cells {
		r := r
		r.Run, r.Cell, r.Policy, r.Digest = l.Run, l.ID, l.Policy, l.Digest
		l.ledger.Add(r)
		l.records = append(l.records, r)
		l.notify()
	}
}

func (l *testLease) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (g *testGate) health(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	why := g.denying
	g.mu.Unlock()
	if why != "" {
		answer(w, 200, control.Health{Status: control.StatusDenying, Instance: "1", Policies: []string{"open", "strict"}, Warnings: []string{why}})
		return
	}
	answer(w, 200, control.Health{Status: control.StatusOK, Instance: "1", Digest: "sha256:all", Policies: []string{"open", "strict"},
		Digests: map[string]string{"open": "sha256:open", "strict": g.digest("strict")}, Bounded: []string{"strict"}})
}

// digest is that of a policy. The caller does not hold the mutex.
func (g *testGate) digest(policy string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return "sha256:" + policy + strings.Repeat("'", g.changes)
}

func answer(w http.ResponseWriter, status int, v any) {
	kind := "application/json"
	if status >= 400 {
		kind = control.ProblemType
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

func (g *testGate) lease(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var l control.Lease
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
		answer(w, 400, control.Problem{Status: 400, Code: control.CodeInvalid})
		return
	}
	if len(g.refuse) > 0 {
		p := g.refuse[0]
		g.refuse = g.refuse[1:]
		answer(w, p.Status, p)
		return
	}
	g.granted = append(g.granted, l)
	digest := "sha256:" + l.Policy
	if l.Policy == "strict" {
		digest += strings.Repeat("'", g.changes)
	}
	c := &testLease{
		Cell:    control.Cell{ID: r.PathValue("id"), Lease: l, Digest: digest},
		ledger:  account.NewLedger(l.Policy, digest),
		changed: make(chan struct{}),
	}
	c.Receipt = c.ledger.Receipt()
	g.cells[c.ID] = c
	answer(w, 200, c.Cell)
}

func (g *testGate) release(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.cells[r.PathValue("id")]
	if !ok {
		answer(w, 404, control.Problem{Status: 404, Code: control.CodeNotLeased})
		return
	}
	delete(g.cells, c.ID)
	c.over = true
	c.notify()
	c.Receipt = c.ledger.Receipt()
	answer(w, 200, c.Cell)
}

func (g *testGate) decisions(w http.ResponseWriter, r *http.Request) {
	run := r.URL.Query().Get("run")
	w.WriteHeader(200)
	flush := http.NewResponseController(w).Flush
	flush()
	enc := json.NewEncoder(w)
	var cell *testLease
	for sent := 0; ; {
		g.mu.Lock()
		for _, l := range g.cells {
			if l.Run == run {
				cell = l
			}
		}
		if cell == nil {
			g.mu.Unlock()
			enc.Encode(account.Record{Kind: control.KindEnd})
			return
		}
		records, over, changed := slices.Clone(cell.records[sent:]), cell.over, cell.changed
		g.mu.Unlock()
		for _, rec := range records {
			enc.Encode(rec)
		}
		sent += len(records)
		if over {
			enc.Encode(account.Record{Kind: control.KindEnd})
			return
		}
		flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
