package compose_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// relays asks for the same places straight, through processes that relay on
// loopback, and through one that is an HTTP proxy.
const relays = `
import os, threading
def pump(a, b):
    try:
        while (d := a.recv(65536)): b.sendall(d)
    except OSError: pass
    for s in (a, b):
        try: s.shutdown(socket.SHUT_RDWR)
        except OSError: pass
def relay(ln, dial):
    while True:
        c = ln.accept()[0]
        def serve(c=c):
            try: u = dial(c)
            except OSError as e: c.close(); return
            threading.Thread(target=pump, args=(c, u), daemon=True).start()
            pump(u, c)
        threading.Thread(target=serve, daemon=True).start()
def connect(c): # an HTTP proxy, for CONNECT alone
    head = b""
    while b"\r\n\r\n" not in head: head += c.recv(4096)
    host = head.split()[1].decode().rsplit(":", 1)[0]
    u = socket.create_connection((host, 443), 4)
    c.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    return u
ports, relays = {}, []
for what, dial in (("tls", lambda c: socket.create_connection((gate, 443), 4)), ("http", lambda c: socket.create_connection((gate, 80), 4)), ("proxy", connect)):
    ln = socket.create_server(("127.0.0.1", 0))
    ports[what] = ln.getsockname()[1]
    relays.append(os.fork())
    if relays[-1] == 0: relay(ln, dial)
for n in ("docs.example", "refused.example", "private.example"):
    print("straight-" + n, tls(gate, 443, n))
    print("relayed-" + n, tls("127.0.0.1", ports["tls"], n))
def status(host, port, asked):
    try:
        with socket.create_connection((host, port), 4) as s:
            s.sendall(f"HEAD / HTTP/1.1\r\nHost: {asked}\r\nConnection: close\r\n\r\n".encode())
            return s.recv(4096).split(b"\r\n")[0].decode()
    except OSError as e: return name(e)
for n in ("docs.example", "refused.example"):
    print("straight-http-" + n, status(gate, 80, n))
    print("relayed-http-" + n, status("127.0.0.1", ports["http"], n))
import subprocess
for n in ("docs.example", "refused.example"):
    c = subprocess.run(["curl", "-sS", "-m", "10", "-o", "/dev/null", "-w", "%{http_code}", "-x", f"http://127.0.0.1:{ports['proxy']}", f"https://{n}/"], capture_output=True, text=True)
    print("proxied-" + n, c.stdout)
for pid in relays: os.kill(pid, 9)
E`

// TestRelayInTheSandboxChangesNothing asks for the same places straight and
// through another process of the sandbox, which relays on loopback, and through
// one that is an HTTP proxy.
//
// probe: P10
// oracle: the receipt, where both ways make one row with twice the count; the far side,
// which sees the allowed host alone
func TestRelayInTheSandboxChangesNothing(t *testing.T) {
	before := lastHit(t)
	out, res := output(t, "strict", attack+relays)
	got := lines(out)
	for _, name := range []string{"docs.example", "refused.example", "private.example", "http-docs.example", "http-refused.example"} {
		if straight, relayed := got["straight-"+name], got["relayed-"+name]; straight == "" || straight != relayed {
			t.Errorf("%s: straight %q, relayed %q", name, straight, relayed)
		}
	}
	if got["relayed-docs.example"] != "handshake" || got["proxied-docs.example"] != "200" || got["relayed-http-docs.example"] != "HTTP/1.1 200 OK" {
		t.Errorf("control: the allowed host is not reached through the relays:\n%s", out)
	}
	if got["proxied-refused.example"] != "000" || got["relayed-http-refused.example"] != "HTTP/1.1 403 Forbidden" {
		t.Errorf("the refused host through the relays:\n%s", out)
	}
	wantCounts(t, res.Receipt, []account.ReceiptHost{
		{Host: "docs.example", Kind: account.KindTLS, Reason: firewall.ReasonListed, Count: 3}, // with the one through the HTTP proxy
		{Host: "refused.example", Kind: account.KindTLS, Reason: firewall.ReasonNotListed, Count: 2},
		{Host: "private.example", Kind: account.KindTLS, Reason: firewall.ReasonAddress, Count: 2},
		{Host: "docs.example", Kind: account.KindHTTP, Reason: firewall.ReasonListed, Count: 2},
		{Host: "refused.example", Kind: account.KindHTTP, Reason: firewall.ReasonNotListed, Count: 2},
	})
	wantRow(t, res.Receipt, "refused.example", account.KindDNS, firewall.ReasonNotListed)
	for _, h := range hits(t, before) {
		if h.Kind != "dns" && h.Name != "docs.example" {
			t.Errorf("the far side saw %+v", h)
		}
	}
}

// wantCounts wants rows of that host, kind, reason and count.
func wantCounts(t *testing.T, r account.Receipt, rows []account.ReceiptHost) {
	t.Helper()
	for _, want := range rows {
		if !slices.ContainsFunc(r.Hosts, func(h account.ReceiptHost) bool {
			return h.Host == want.Host && h.Kind == want.Kind && h.Reason == want.Reason && h.Count == want.Count
		}) {
			t.Errorf("the receipt has no row %+v:\n%+v", want, r.Hosts)
		}
	}
}

// TestGateRoutesNothing stands in a cell with the power to set routes, which no
// sandbox has, and sends packets for the far side by way of the gate's address.
//
// probe: N12
// oracle: the far side's canaries, which the gate itself reaches and nobody through it
func TestGateRoutesNothing(t *testing.T) {
	gate := container(t, "gate", "")
	if !dials(t, namespaceOf(t, gate), lan+".10:22") {
		t.Fatal("control: from the gate's own namespace the canary is not reached")
	}
	var network string
	for id := range cells(t) {
		network = id
	}
	if network == "" {
		t.Fatal("there is no cell")
	}
	hop := docker(t, "network", "inspect", "-f", `{{range $id, $c := .Containers}}{{if eq $id "`+docker(t, "inspect", "-f", "{{.Id}}", gate)+`"}}{{$c.IPv4Address}}{{end}}{{end}}`, network)
	via, _, err := net.ParseCIDR(hop)
	if err != nil {
		t.Fatalf("the gate's address in the cell is %q: %v", hop, err)
	}
	intruder := docker(t, "run", "-d", "--network", network, "--entrypoint", "sleep", "sallyport/agent:dev", "300")
	defer docker(t, "rm", "-f", intruder)
	ns := namespaceOf(t, intruder)
	err = within(ns, func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: via, Dst: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}})
	})
	if err != nil {
		t.Fatalf("set a route by way of the gate: %v", err)
	}
	before := lastHit(t)
	for _, to := range []string{lan + ".10:22", wan + ".10:443"} {
		if dials(t, ns, to) {
			t.Errorf("%s is reached by way of the gate", to)
		}
	}
	for _, h := range hits(t, before) {
		t.Errorf("the far side saw %+v", h)
	}
}

// dials says whether a TCP connection from a network namespace is made.
func dials(t *testing.T, ns netns.NsHandle, to string) bool {
	t.Helper()
	err := within(ns, func() error {
		c, err := net.DialTimeout("tcp4", to, 2*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
	return err == nil
}

// ownAddresses has the gate look up listed names that lead to its own addresses
// and to the host's, whose listener takes anything on port 443. It wants the second
// engine, where that port is nobody's.
func ownAddresses(t *testing.T, e *secondEngine) {
	var reached func() string
	var host []string
	err := within(e.ns, func() error {
		_, _, reached = hostListeners(t, 443)
		host = hostAddresses(t)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	uplinks := docker(t, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", container(t, "gate", ""))
	// The gate knows its own addresses, those that look public, too; of the host's it
	// refuses those that are private (docs/threat-model.md, "The host's public address").
	refused := slices.DeleteFunc(host, func(a string) bool { return !net.ParseIP(a).IsPrivate() })
	refused = append(refused, strings.Fields(uplinks)...)
	if len(refused) < 5 || !strings.Contains(uplinks, wan) {
		t.Fatalf("host and gate have only the addresses %v", refused)
	}
	out, res := output(t, "strict", attack+fmt.Sprintf(`
def at(a, zone="addr.example"): return a.replace(".", "-") + "." + zone
print("cell", tls(gate, 443, at(gate)), tls(gate, 443, at(gate.rsplit(".", 1)[0] + "." + str(int(gate.rsplit(".", 1)[1]) + 1))))
for a in %q.split(): print(a, tls(gate, 443, at(a)), http(gate, f"GET / HTTP/1.1\r\nHost: {at(a)}\r\n\r\n"))
print("CELL", at(gate))
E`, strings.Join(refused, " ")))
	if strings.Contains(out, "handshake") || strings.Contains(out, "200 OK") || strings.Contains(out, "reached") {
		t.Errorf("something answered:\n%s", out)
	}
	if got := reached(); got != "" {
		t.Errorf("the host's listener saw %s", got)
	}
	names := []string{lines(out)["CELL"]}
	for _, a := range refused {
		names = append(names, strings.ReplaceAll(a, ".", "-")+".addr.example")
	}
	for _, name := range names {
		wantRow(t, res.Receipt, name, account.KindTLS, firewall.ReasonAddress)
	}

	// The control: where the operator admits the host's address, that is dialled. At
	// the gate's own, admitted as well, nothing listens.
	bridge, own := lan+".1", slices.DeleteFunc(strings.Fields(uplinks), func(a string) bool { return !strings.HasPrefix(a, lan+".") })[0]
	name := func(a string) string { return strings.ReplaceAll(a, ".", "-") + ".addr.docs.example" }
	_, res = output(t, "strict", attack+fmt.Sprintf(`
for n in (%q, %q): print(tls(gate, 443, n))
E`, name(bridge), name(own)))
	if got := reached(); !strings.Contains(got, "tcp") {
		t.Error("control: the host's listener is not reached by the name that admits it")
	}
	wantRow(t, res.Receipt, name(bridge), account.KindTLS, firewall.ReasonListed)
	wantRow(t, res.Receipt, name(own), account.KindTLS, firewall.ReasonDial)
}
