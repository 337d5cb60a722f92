package executor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/backend"
	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/gate"
	"sallyport/gate/control"
	"sallyport/sniproxy/resolve"
)

// loopbackCells are cells in 127/8, all of which is this machine's, so that the
// real gate can listen in them.
type loopbackCells struct{ testCells }

func (c *loopbackCells) Acquire(ctx context.Context) (backend.Cell, error) {
	cell, err := c.testCells.Acquire(ctx)
	n := byte(c.made.Load())
	cell.Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 77, n, 0}), 28)
	cell.Gate, cell.Sandbox = netip.AddrFrom4([4]byte{127, 77, n, 2}), netip.AddrFrom4([4]byte{127, 77, n, 3})
	return cell, err
}

// TestRealGate has the real gate lease, decide and report. Where the gate cannot
// listen on its ports, for want of privilege, what must come is a refusal.
func TestRealGate(t *testing.T) {
	policies, err := allowlist.Parse(strings.NewReader("version: 1\npolicies:\n  strict: {allow: [.allowed.example.com]}\n  open: {allow: any}\n"), "allowlist.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "sp-real-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("unix", dir+"/control.sock")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	daemon := &gate.Daemon{Allowlist: policies, Resolver: &resolve.Client{}, Log: slog.New(slog.DiscardHandler)}
	go func() { served <- daemon.Serve(ctx, ln) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	cells := &loopbackCells{}
	h := start(t, func(c *executor.Config) {
		client := &control.Client{Socket: dir + "/control.sock"}
		c.Gate, c.GateState = client, client
		c.Backends[0].Cells = cells
	})
	argv, _ := json.Marshal([]string{"env", roleVariable + "=resolver", os.Args[0], "127.77.1.2:53", "127.77.1.3", "x.allowed.example.com", "refused.example.com"})
	body := `{"prompt":"p","config":{"agent":"command","argv":` + string(argv) + `}}`
	id := h.begin(body)
	res := h.finish(id)
	if probe, err := net.Listen("tcp", "127.77.250.1:53"); err != nil {
		wantCode(t, res, api.CodeStartFailed)
		return
	} else {
		probe.Close()
	}
	if !res.Success || res.Output != "x.allowed.example.com [127.77.1.2] false\nrefused.example.com [] true\n" {
		t.Fatalf("output %q, %v", res.Output, res.Error)
	}
	strict, _ := policies.Policy("strict")
	if res.Receipt.Policy != "strict" || res.Receipt.Digest != strict.Digest() {
		t.Errorf("receipt = %+v", res.Receipt)
	}
	got := map[string]firewall.Verdict{}
	for _, row := range res.Receipt.Hosts {
		got[row.Host] = row.Verdict
	}
	if got["x.allowed.example.com"] != firewall.Allow || got["refused.example.com"] != firewall.Deny || len(got) != 2 {
		t.Errorf("receipt = %+v", res.Receipt)
	}
	egress := map[string]bool{}
	for _, ev := range h.events(id, "") {
		if ev.Type == api.EventEgress {
			egress[ev.Decision.Host] = true
		}
	}
	if fmt.Sprint(egress) != "map[refused.example.com:true x.allowed.example.com:true]" {
		t.Errorf("egress events about %v", egress)
	}

	id = h.begin(command("echo begun; sleep 60"))
	h.awaitText(id, "begun")
	cancel()
	wantCode(t, h.finish(id), api.CodeGateUnavailable)
	if n := cells.out.Load(); n != 0 {
		t.Errorf("%d cells were not given back", n)
	}
}
