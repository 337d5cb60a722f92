package compose_test

import (
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// attack begins a python program for what an attacker in a sandbox tries. Its
// functions say what came back from the far side, or the error's name:
//
//	tcp(host, port)       connects, sends a line, reads
//	udp(host, port)       sends a packet, waits for an answer
//	tls(host, port, sni)  "handshake" if a server's handshake came back
//	named(host, sni)      the same on port 443, with any name in the hello
//	http(host, requests)  the status lines of what came back
const attack = `python3 - <<'E'
import socket, ssl, struct
gate = next(l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver"))
def name(e): return type(e).__name__
def tcp(host, port, read=64):
    try:
        with socket.create_connection((host, port), 4) as s:
            s.sendall(b"hello\r\n\r\n")
            return "answer" if s.recv(read) else "closed"
    except OSError as e: return name(e)
def udp(host, port, payload=b"hello", opts=()):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    try:
        for o in opts: s.setsockopt(*o)
        s.sendto(payload, (host, port))
        return "answer" if s.recv(64) else "closed"
    except OSError as e: return name(e)
def tls(host, port, sni):
    c = ssl._create_unverified_context()
    try:
        with socket.create_connection((host, port), 4) as s:
            with c.wrap_socket(s, server_hostname=sni): return "handshake"
    except (OSError, ValueError) as e: return name(e)
def hello(sni): # with any name, also one that Python's ssl leaves out
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    stand_in = "z" * len(sni)
    try: ssl._create_unverified_context().wrap_bio(i, o, server_hostname=stand_in).do_handshake()
    except ssl.SSLWantReadError: pass
    sent = o.read()
    assert stand_in.encode() in sent
    return sent.replace(stand_in.encode(), sni.encode())
def named(host, sni):
    try:
        with socket.create_connection((host, 443), 4) as s:
            s.sendall(hello(sni))
            return "handshake" if s.recv(5)[:1] == b"\x16" else "refused"
    except OSError as e: return name(e)
def http(host, *requests):
    got = b""
    try:
        with socket.create_connection((host, 80), 4) as s:
            for r in requests:
                s.sendall(r.encode())
                s.settimeout(3)
                part = b""
                while b"\r\n\r\n" not in part:
                    p = s.recv(4096)
                    if not p: break
                    part += p
                got += part.split(b"\r\n")[0] + b";"
    except OSError as e: got += name(e).encode()
    return got.decode()
`

// lines is what an attack printed, by the first word of each line.
func lines(out string) map[string]string {
	all := map[string]string{}
	for l := range strings.Lines(out) {
		word, rest, _ := strings.Cut(strings.TrimSpace(l), " ")
		all[word] = rest
	}
	return all
}

// hostListeners opens listeners on all addresses of this machine and counts what
// reaches them. The tests run on the engine's host. Where no TCP port is given, it
// takes a free one.
func hostListeners(t *testing.T, port int) (tcpPort, udpPort int, reached func() string) {
	t.Helper()
	ln, err := net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	arrivals := make(chan string, 1000)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			arrivals <- "tcp from " + c.RemoteAddr().String()
			_, _ = c.Write([]byte("reached\n"))
			c.Close()
		}
	}()
	go func() {
		buf := make([]byte, 100)
		for {
			_, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			arrivals <- "udp from " + from.String()
			_, _ = pc.WriteTo([]byte("reached\n"), from)
		}
	}()
	t.Cleanup(func() { ln.Close(); pc.Close() })
	return ln.Addr().(*net.TCPAddr).Port, pc.LocalAddr().(*net.UDPAddr).Port, func() string {
		var all []string
		for {
			select {
			case a := <-arrivals:
				all = append(all, a)
			default:
				return strings.Join(all, "; ")
			}
		}
	}
}

// hostAddresses are this machine's IPv4 addresses but for loopback, the gateway
// addresses of the engine's bridges among them.
func hostAddresses(t *testing.T) (all []string) {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip := a.(*net.IPNet).IP.To4(); ip != nil && !ip.IsLoopback() {
			all = append(all, ip.String())
		}
	}
	return all
}

// TestStrictSandboxDoesNotReachTheHost tries the host's listeners from both policies.
//
// probe: N5, X2
// oracle: listeners on all addresses of the host, which an ordinary container reaches
// on each
func TestStrictSandboxDoesNotReachTheHost(t *testing.T) {
	tcpPort, udpPort, reached := hostListeners(t, 0)
	addrs := hostAddresses(t)

	// The control: an ordinary container does reach them.
	for _, a := range addrs {
		docker(t, "run", "--rm", "--entrypoint", "bash", "sallyport/agent:dev", "-c", fmt.Sprintf("timeout 5 head -c 3 < /dev/tcp/%s/%d", a, tcpPort))
	}
	if got := reached(); strings.Count(got, "tcp") != len(addrs) {
		t.Fatalf("control: an ordinary container reached the listeners as %q, want one for each of %v", got, addrs)
	}

	for _, policy := range []string{"strict", "open"} {
		script := attack + fmt.Sprintf(`
import itertools
T, U = %d, %d
for a in %q.split() + [gate.rsplit(".", 1)[0] + "." + str(int(gate.rsplit(".", 1)[1]) - 1)]:
    print("host-" + a, tcp(a, T), udp(a, U))
    print("dontroute-" + a, udp(a, U, opts=[(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)]))
    print("device-" + a, udp(a, U, opts=[(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0"), (socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)]))
print("multicast", udp("224.0.0.1", U))
print("broadcast", udp("255.255.255.255", U, opts=[(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)]))
print("control", tls(gate, 443, "docs.example"))
E`, tcpPort, udpPort, strings.Join(addrs, " "))
		out, _ := output(t, policy, script)
		if strings.Contains(out, "answer") {
			t.Errorf("%s: an address of the host answered:\n%s", policy, out)
		}
		if got := reached(); got != "" {
			t.Errorf("%s: the host's listeners saw %s", policy, got)
		}
		if policy == "strict" && lines(out)["control"] != "handshake" {
			t.Errorf("control: the gate's tunnel answered %q, want a handshake:\n%s", lines(out)["control"], out)
		}
	}
}

// TestSandboxDialsNothingOutsideItsCell tries every way past the gate, under both
// policies.
//
// probe: N1, N2, N3, N4, N11, D2
// oracle: the private and the public network of the far side, which note every
// connection, datagram, query and hello and see those of the gate's; a canary that the
// gate's own namespace reaches; the gate's tunnel works meanwhile
func TestSandboxDialsNothingOutsideItsCell(t *testing.T) {
	gate := container(t, "gate", "")
	canariesWork(t, gate)
	for policy, allowed := range map[string]string{"strict": "docs.example", "open": "refused.example"} {
		before := lastHit(t)
		out, _ := output(t, policy, dnsAsk+fmt.Sprintf(`
query = struct.pack(">HHHHHHH", 29, 7, 0x100, 1, 0, 0, 0) + b"\4docs\7example\0\0\1\0\1"
for a in (%q, %q, "127.0.0.11"):
    print(f"query-{a}", "answer" if isinstance(ask(a, "docs.example", 1), tuple) else "none")
    try:
        with socket.create_connection((a, 53), 4) as s:
            s.sendall(query)
            print(f"query-tcp-{a}", "answer" if s.recv(2) else "closed")
    except OSError as e: print(f"query-tcp-{a}", type(e).__name__)
E
`, lan+".10", wan+".10")+attack+fmt.Sprintf(`
for a in (%q, %q):
    for p in (22, 25, 80, 853, 8443): print(f"tcp-{a}-{p}", tcp(a, p))
    for p in (123, 443): print(f"udp-{a}-{p}", udp(a, p))
    print(f"tls-{a}", "answer" if named(a, "docs.example") == "handshake" else "none")
for a in ("8.8.8.8", "192.0.2.1"):  # refused by the kernel of the cell: nothing is sent
    for p in (53, 80, 443): print(f"tcp-{a}-{p}", tcp(a, p), udp(a, p))
for p in (22, 54, 853, 2375, 7280, 8080, 9090, 9153): print(f"gate-{p}", tcp(gate, p), udp(gate, p))
print("gate-quic", udp(gate, 443), "gate-80", udp(gate, 80))
def make(*a):
    try: socket.socket(*a); return "made"
    except OSError as e: return name(e)
print("raw", make(socket.AF_INET, socket.SOCK_RAW, 1), "packet", make(socket.AF_PACKET, socket.SOCK_RAW, 0x300))
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1); s.settimeout(1); s.sendto(b"\x08\0\0\0\0\1\0\1", (gate, 0)); print("ping", s.recv(99) and "answer")
except OSError as e: print("ping", name(e))
try:
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.sendto(b"x", ("ff02::1", 9, 0, 2)); print("ipv6 sent-answer")
except OSError as e: print("ipv6", name(e))
print("control", named(gate, %q))
E`, lan+".10", wan+".10", allowed))
		if strings.Contains(out, "answer") || strings.Contains(out, "made") {
			t.Errorf("%s: something answered:\n%s", policy, out)
		}
		if got := lines(out)["control"]; got != "handshake" {
			t.Errorf("%s: control: the gate's tunnel answered %q:\n%s", policy, got, out)
		}
		wantOnlyTheGate(t, policy, gate, hits(t, before))
	}
}

// canariesWork sends to canaries of the far side from the gate's network namespace.
func canariesWork(t *testing.T, gate string) {
	t.Helper()
	before := lastHit(t)
	pid := docker(t, "inspect", "-f", "{{.State.Pid}}", gate)
	for _, at := range []string{"tcp/" + lan + ".10/8443", "udp/" + lan + ".10/443", "tcp/" + wan + ".10/22", "udp/" + wan + ".10/123"} {
		if out, err := exec.Command("nsenter", "-t", pid, "-n", "timeout", "5", "bash", "-c", "echo hello >/dev/"+at).CombinedOutput(); err != nil {
			t.Fatalf("control: %s: %v %s", at, err, out)
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for len(hits(t, before)) < 4 {
		if time.Now().After(deadline) {
			t.Fatalf("control: of four canaries the far side noted %+v", hits(t, before))
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// wantOnlyTheGate fails the test if anything came from elsewhere than the gate, or to
// a canary.
func wantOnlyTheGate(t *testing.T, policy, gate string, seen []hit) {
	t.Helper()
	own := strings.Fields(docker(t, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", gate))
	for _, h := range seen {
		from, _, _ := strings.Cut(h.From, ":")
		if h.Kind == "tcp" || h.Kind == "udp" || !slices.Contains(own, from) {
			t.Errorf("%s: the far side saw %+v", policy, h)
		}
	}
}

// TestStrictSandboxIsJudgedInTheTunnel asks the gate for what it must refuse, and for
// what it must not.
//
// probe: N9, S5, S12, H1, H4, H5, H8, R1, R3, R6, R11
// oracle: the servers of the far side, which note the name that each was asked for; the
// receipt
func TestStrictSandboxIsJudgedInTheTunnel(t *testing.T) {
	before := lastHit(t)
	out, res := output(t, "strict", attack+`
import time
def timed(f, *a):
    t = time.monotonic(); r = f(*a); return r, "slow" if time.monotonic() - t > 1 else "fast"
print("listed", tls(gate, 443, "docs.example"))
print("unlisted", *timed(tls, gate, 443, "refused.example"))
print("named", named(gate, "docs.example"))
print("ip", *timed(named, gate, "93.184.216.34"))
print("ipv6", named(gate, "2606:2800:220:1::1"))
print("hex", named(gate, "0x5d.0xb8.0xd8.0x22"))
print("number", named(gate, "1572395042"))
print("none", *timed(tls, gate, 443, None))
print("private", tls(gate, 443, "private.example"))
print("metadata", tls(gate, 443, "metadata.example"))
print("loopback", tls(gate, 443, "loopback.example"))
print("mixed", tls(gate, 443, "mixed.example"))
print("alias", tls(gate, 443, "alias.example"))
print("floor", tls(gate, 443, "metadata.google.internal"))
get = "GET / HTTP/1.1\r\nHost: %s\r\n\r\n"
head = "HEAD / HTTP/1.1\r\nHost: %s\r\n\r\n"
print("second", http(gate, head % "docs.example", head % "refused.example"))
print("twice", http(gate, head % "docs.example", head % "docs.example"))
print("connect", http(gate, "CONNECT docs.example:443 HTTP/1.1\r\nHost: docs.example:443\r\n\r\n"))
print("absolute", http(gate, "GET http://refused.example/ HTTP/1.1\r\nHost: docs.example\r\n\r\n"))
E`)
	got := lines(out)
	for _, name := range []string{"unlisted", "ip", "ipv6", "hex", "number", "none", "private", "metadata", "loopback", "mixed", "alias", "floor"} {
		if strings.HasPrefix(got[name], "handshake") {
			t.Errorf("%s: got through to a server", name)
		}
	}
	for _, name := range []string{"unlisted", "ip", "none"} {
		if !strings.HasSuffix(got[name], "fast") {
			t.Errorf("%s: %q, want a refusal within a second", name, got[name])
		}
	}
	want := map[string]string{"listed": "handshake", "named": "handshake", "twice": "HTTP/1.1 200 OK;HTTP/1.1 200 OK;", "second": "HTTP/1.1 200 OK;HTTP/1.1 403 Forbidden;",
		"connect": "HTTP/1.1 405 Method Not Allowed;", "absolute": "HTTP/1.1 400 Bad Request;"}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %q, want %q", name, got[name], w)
		}
	}
	for _, h := range hits(t, before) {
		if h.Name != "" && h.Kind != "dns" && h.Name != "docs.example" {
			t.Errorf("the far side saw %+v", h)
		}
	}
	wantRow(t, res.Receipt, "refused.example", account.KindTLS, firewall.ReasonNotListed)
	wantRow(t, res.Receipt, "refused.example", account.KindHTTP, firewall.ReasonNotListed)
	for _, host := range []string{"private.example", "metadata.example", "loopback.example", "mixed.example", "alias.example"} {
		wantRow(t, res.Receipt, host, account.KindTLS, firewall.ReasonAddress)
	}
	wantRow(t, res.Receipt, "metadata.google.internal", account.KindTLS, firewall.ReasonFloorName)
	for _, host := range []string{"93.184.216.34", "2606:2800:220:1::1", "0x5d.0xb8.0xd8.0x22", "1572395042"} {
		wantRow(t, res.Receipt, host, account.KindTLS, firewall.ReasonBadName)
	}
}

// TestSandboxesDoNotReachEachOther runs a server in one sandbox and attacks it,
// and the gate in its cell, from another.
//
// probe: N7
// oracle: the server in the other sandbox, which answers in its own namespace
func TestSandboxesDoNotReachEachOther(t *testing.T) {
	const server = `hostname -I 2>/dev/null || python3 -c 'import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((next(l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver")), 53)); print(s.getsockname()[0])'
hostname; python3 -m http.server 8000 >/dev/null 2>&1 & sleep 300`
	victim := begin(t, bash("open", server))
	defer cancelRun(t, victim)
	sandbox := container(t, "sandbox", victim)
	cell := strings.TrimPrefix(docker(t, "inspect", "-f", "{{.HostConfig.NetworkMode}}", sandbox), "container:")
	addr := docker(t, "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", cell)
	names := strings.Fields(docker(t, "inspect", "-f", "{{.Name}} {{printf \"%.12s\" .ID}}", cell, sandbox))
	otherGate := addr[:strings.LastIndex(addr, ".")+1] + lastOctetDown(addr)

	out, _ := output(t, "strict", attack+fmt.Sprintf(`
other, othergate = %q, %q
print("sandbox", tcp(other, 8000), udp(other, 8000))
print("dontroute", udp(othergate, 53, opts=[(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0"), (socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)]))
print("gate", tls(othergate, 443, "refused.example"), tls(othergate, 443, "docs.example"), tcp(othergate, 80), udp(othergate, 53))
for n in %q.split():
    try: print("name-" + n, socket.gethostbyname(n.strip("/")), "answer")
    except OSError as e: print("name-" + n, name(e))
print("control", tls(gate, 443, "docs.example"))
E`, addr, otherGate, strings.Join(names, " ")))
	if strings.Contains(out, "answer") || strings.Contains(lines(out)["gate"], "handshake") {
		t.Errorf("the other cell answered:\n%s", out)
	}
	if got := lines(out)["control"]; got != "handshake" {
		t.Errorf("control: the own gate answered %q", got)
	}
	// The control: from its own namespace the server answers.
	if got := docker(t, "exec", sandbox, "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://"+addr+":8000/"); got != "200" {
		t.Errorf("control: the server in the other sandbox answers itself with %q", got)
	}
}

// lastOctetDown is the last number of an address less one: the gate's place in a
// cell is the one before the sandbox's.
func lastOctetDown(addr string) string {
	var a, b, c, d int
	_, _ = fmt.Sscanf(addr, "%d.%d.%d.%d", &a, &b, &c, &d)
	return fmt.Sprint(d - 1)
}
