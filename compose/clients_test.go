package compose_test

import (
	"cmp"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// A realClient is a program with a script for a place that the policy allows and
// one for a place that it does not. A refused script must fail by itself and at
// once: it runs under timeout(1), whose status 124 fails the test.
type realClient struct {
	name, allowed, want, refused string
	policy                       string // strict, if empty
}

// ordinary are those of the agent image.
var ordinary = []realClient{
	{
		name:    "curl over https",
		allowed: `curl -fsS https://docs.example/`, want: "which the policy allows",
		refused: `curl -fsS https://refused.example/`,
	},
	{
		name:    "curl over http",
		allowed: `curl -fsS http://docs.example/`, want: "which the policy allows",
		refused: `curl -fsS http://refused.example/`,
	},
	{
		name:    "git over https",
		allowed: `git clone -q https://git.docs.example/hello.git d && git -C d log --oneline | wc -l | xargs echo commits`, want: "commits ",
		refused: `git clone -q https://refused.example/hello.git r`,
	},
	{
		name:    "fetch of node",
		allowed: `node -e 'fetch("https://docs.example/").then(r => r.text()).then(console.log)'`, want: "which the policy allows",
		refused: `node -e 'fetch("https://refused.example/").catch(e => { console.error(e.cause.code); process.exit(3) })'`,
	},
	{
		name:    "urllib of python",
		allowed: `python3 -c 'import urllib.request as u; print(u.urlopen("https://docs.example/").read().decode())'`, want: "which the policy allows",
		refused: `python3 -c 'import urllib.request as u; u.urlopen("https://refused.example/")'`,
	},
	{
		name: "apt over http",
		allowed: aptUpdate("deb.example") + ` && cd $state && apt-get $opts download hello-sallyport 2>/dev/null &&
dpkg-deb -f hello-sallyport_1.0_all.deb Description`, want: "a package of the demo's internet",
		refused: aptUpdate("refused.example"),
	},
	{
		name: "npm",
		allowed: `npm install --no-audit --registry https://npm.docs.example hello-sallyport >&2 &&
node -p 'require("hello-sallyport").description'`, want: "Hello from npm.",
		refused: `npm install --no-audit --registry https://refused.example hello-other`,
	},
	{
		name:    "web socket of node",
		allowed: webSocket("ws.docs.example"), want: "heard one, heard two, closed",
		refused: webSocket("refused.example"),
	},
	{
		name:    "server-sent events over https",
		allowed: serverSentEvents("https://docs.example"), want: "data: first\n\ndata: second",
		refused: serverSentEvents("https://refused.example"),
	},
	{
		name:    "server-sent events over http",
		allowed: serverSentEvents("http://docs.example"), want: "data: first\n\ndata: second",
		refused: serverSentEvents("http://refused.example"),
	},
	{
		name:    "long poll",
		allowed: longPoll("docs.example"), want: "polled",
		refused: longPoll("refused.example"),
	},
}

// webSocket has node say two words to an echo, the second after the first came
// back.
func webSocket(host string) string {
	return `node -e '
const w = new WebSocket("wss://` + host + `/"), heard = [];
w.onopen = () => w.send("one");
w.onmessage = m => { heard.push("heard " + m.data); heard.length < 2 ? w.send("two") : w.close() };
w.onclose = () => console.log(heard.join(", ") + ", closed");
w.onerror = () => process.exit(3)'`
}

// serverSentEvents reads a stream whose server sends the second event only after
// a request that is made when the first has come: what holds an event back on the
// way stops it for good.
func serverSentEvents(site string) string {
	return `set -o pipefail; id=$RANDOM$RANDOM; curl -fsSN "` + site + `/events?id=$id" |
while IFS= read -r line; do echo "$line"; case $line in *first) curl -fsS -X POST "` + site + `/go?id=$id";; esac; done`
}

// longPoll asks for what is there only after a second request.
func longPoll(host string) string {
	return `id=$RANDOM$RANDOM; curl -fsS "https://` + host + `/poll?id=$id" & curl -fsS -X POST "https://` + host + `/go?id=$id"; wait $!`
}

// aptUpdate is apt-get update for an ordinary user, with directories of its own.
func aptUpdate(host string) string {
	return `state=$(mktemp -d); mkdir -p $state/lists/partial $state/cache/archives/partial; touch $state/status
echo "deb [trusted=yes] http://` + host + `/ ./" > $state/sources.list
opts="-o Dir::State=$state -o Dir::State::status=$state/status -o Dir::Cache=$state/cache -o Dir::Etc::sourcelist=$state/sources.list -o Dir::Etc::sourceparts=/dev/null -o APT::Get::List-Cleanup=0 -o Debug::NoLocking=1 -o Acquire::Retries=0"
apt-get $opts -o APT::Update::Error-Mode=any update`
}

// guarded runs a script that must fail, and prints how it ended.
func guarded(script string) string {
	return "timeout 60 bash -c '" + strings.ReplaceAll(script, "'", `'\''`) + "'; echo status $?"
}

// TestClientsWorkWithoutProxyVariables runs each program of the agent image.
func TestClientsWorkWithoutProxyVariables(t *testing.T) {
	for _, c := range ordinary {
		t.Run(c.name, func(t *testing.T) { checkClient(t, c) })
	}
}

func checkClient(t *testing.T, c realClient) {
	policy := cmp.Or(c.policy, "strict")
	out, _ := output(t, policy, c.allowed)
	if !strings.Contains(out, c.want) {
		t.Errorf("it printed %q, want %q in it", out, c.want)
	}
	before := lastHit(t)
	out, res := output(t, policy, guarded(c.refused))
	if strings.Contains(out, "status 0") || strings.Contains(out, "status 124") {
		t.Errorf("the refused host: %q, want a failure without a time-out", out)
	}
	for _, h := range hits(t, before) {
		if strings.Contains(h.Name, "refused") {
			t.Errorf("the far side saw %+v", h)
		}
	}
	wantRow(t, res.Receipt, "refused.example", account.KindDNS, firewall.ReasonNotListed)
}

func TestRefusedNamesFailAlike(t *testing.T) {
	// dns answers 3 (NXDOMAIN) for whatever type is asked, so that no client waits.
	out, _ := output(t, "strict", dnsAsk+`
for kind in (1, 28, 15, 16, 65):
    print("refused", kind, ask(gate, "refused.example", kind))
    print("allowed", kind, ask(gate, "docs.example", kind))
E`)
	for _, kind := range []string{"1", "28", "15", "16", "65"} {
		if !strings.Contains(out, "refused "+kind+" (3, 0)") {
			t.Errorf("type %s of a refused name is not NXDOMAIN:\n%s", kind, out)
		}
		want := "(0, 0)" // no such record
		if kind == "1" {
			want = "(0, 1)"
		}
		if !strings.Contains(out, "allowed "+kind+" "+want) {
			t.Errorf("type %s of an allowed name is not %s:\n%s", kind, want, out)
		}
	}
}

// dnsAsk begins a python program with ask(server, name, type), which gives the
// response code and the number of answers, or why there was none. The program
// ends with a line E.
const dnsAsk = `python3 - <<'E'
import socket, struct
gate = next(l.split()[1] for l in open("/etc/resolv.conf") if l.startswith("nameserver"))
def ask(server, name, kind, port=53):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0)
    q += b"".join(bytes([len(l)]) + l.encode() for l in name.split(".")) + b"\0" + struct.pack(">HH", kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(2)
    try:
        s.sendto(q, (server, port))
        a = s.recv(4096)
    except OSError as e:
        return type(e).__name__
    return a[3] & 15, struct.unpack(">H", a[6:8])[0]
`

func TestReceiptCountsBytes(t *testing.T) {
	out, res := output(t, "strict", `curl -fsS 'https://docs.example/bulk?bytes=3000000' | wc -c; head -c 2000000 /dev/zero | curl -fsS --data-binary @- https://docs.example/sink`)
	if !strings.Contains(out, "3000000") || !strings.Contains(out, "2000000") {
		t.Fatalf("the transfers failed: %q", out)
	}
	var up, down, count int64
	for _, r := range rows(res.Receipt, "docs.example", firewall.Allow) {
		if r.Kind == account.KindTLS {
			up, down, count = up+r.BytesUp, down+r.BytesDown, count+r.Count
		}
	}
	if count != 2 || down < 3000000 || down > 3200000 || up < 2000000 || up > 2200000 {
		t.Errorf("receipt: %d connections, %d bytes up, %d down; want 2 with about 2 MB up and 3 MB down", count, up, down)
	}
	if res.Receipt.Policy != "strict" || !strings.HasPrefix(res.Receipt.Digest, "sha256:") {
		t.Errorf("the receipt is of policy %q with digest %q", res.Receipt.Policy, res.Receipt.Digest)
	}
}

func TestDecisionsAreStreamedWhileTheRunGoesOn(t *testing.T) {
	_, events := run(t, bash("strict", `curl -s https://refused.example/; curl -s https://docs.example/; sleep 1; echo done`))
	refused, done := -1, -1
	for i, e := range events {
		if e.Decision != nil && e.Decision.Host == "refused.example" && e.Decision.Verdict == firewall.Deny {
			refused = i
		}
		if e.Type == api.EventOutput && strings.Contains(e.Text, "done") {
			done = i
		}
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has the sequence number %d", i, e.Seq)
		}
	}
	if refused < 0 || done < refused {
		t.Errorf("the refusal is event %d, the last output event %d: want the refusal first", refused, done)
	}
}
