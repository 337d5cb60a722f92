package compose_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// TestOpenReachesAnUnlistedHostAndKeepsTheFloor tries the floor under a policy that
// allows any host.
//
// probe: N6, D18, R1, R3, R4, R6, P6
// oracle: the servers of the far side on the private network, which see nothing, and on
// the public one; the receipt
func TestOpenReachesAnUnlistedHostAndKeepsTheFloor(t *testing.T) {
	before := lastHit(t)
	out, res := output(t, "open", dnsAsk+`
for n in ("refused.example", "metadata.google.internal", "metadata", "host.docker.internal", "169.254.169.254", "2130706433", "dns.google"):
    print(n, ask(gate, n, 1))
E
`+attack+`
print("unlisted", tls("refused.example", 443, "refused.example"))
for n in ("private", "metadata", "loopback", "mixed", "mixed6", "alias"):
    print("lan-" + n, tls(gate, 443, n + ".example"))
for n in ("metadata.google.internal", "169.254.169.254", "11.22.34.10", "0x7f.1", "2130706433", "dns.google"):
    print("name-" + n, named(gate, n))
print("named", named(gate, "refused.example"))
# The first answer is good, the second private. The TTL is 0, and the gate keeps an answer for 5 s.
import time
got = []
for _ in range(3):
    got.append(tls(gate, 443, "rebind.example"))
    time.sleep(6)
print("rebind", got)
E`)
	if !strings.Contains(out, "refused.example (0, 1)") || lines(out)["unlisted"] != "handshake" || lines(out)["named"] != "handshake" {
		t.Errorf("an unlisted host is not reached under open:\n%s", out)
	}
	for _, n := range []string{"metadata.google.internal", "metadata", "host.docker.internal", "169.254.169.254", "2130706433", "dns.google"} {
		if !strings.Contains(out, n+" (3, 0)") {
			t.Errorf("%s is not answered NXDOMAIN:\n%s", n, out)
		}
	}
	for word, got := range lines(out) {
		if (strings.HasPrefix(word, "lan-") || strings.HasPrefix(word, "name-")) && strings.Contains(got, "handshake") {
			t.Errorf("%s: got through", word)
		}
	}
	for _, h := range hits(t, before) {
		if (h.Kind == "tls" || h.Kind == "tcp") && strings.HasPrefix(h.To, lan) {
			t.Errorf("the private address of the far side saw %+v", h)
		}
	}
	good, refused := rows(res.Receipt, "rebind.example", firewall.Allow), rows(res.Receipt, "rebind.example", firewall.Deny)
	if len(good) == 0 || len(refused) == 0 || !strings.Contains(lines(out)["rebind"], "handshake") {
		t.Errorf("rebind.example: want connections to the good answer and refusals of the private one:\n%s\n%+v", out, res.Receipt.Hosts)
	}
	wantRow(t, res.Receipt, "rebind.example", account.KindTLS, firewall.ReasonAddress)
	wantRow(t, res.Receipt, "metadata.google.internal", account.KindTLS, firewall.ReasonFloorName)
}

// TestTwoPoliciesAtOnce has runs of both policies make the same requests.
//
// probe: D19, L9
// oracle: four runs at once: the handshakes that each got, and the receipts, which hold
// no other run's names
func TestTwoPoliciesAtOnce(t *testing.T) {
	const tries = 8
	script := func(own string) string {
		return attack + fmt.Sprintf(`
import time
for i in range(%d):
    for n in ("docs.example", "refused.example"): print(f"{n}-{i}", tls(gate, 443, n))
    tls(gate, 443, %q)
    time.sleep(0.2)
E`, tries, own)
	}
	results := make([]api.Result, 4)
	var wg sync.WaitGroup
	for i := range results {
		policy := []string{"strict", "open"}[i%2]
		wg.Go(func() { results[i], _ = run(t, bash(policy, script(fmt.Sprintf("own%d.example", i)))) })
	}
	wg.Wait()
	for i, res := range results {
		want := i % 2 * tries // open reaches the unlisted host each time
		got := 0
		for l := range strings.Lines(res.Output) {
			if strings.HasPrefix(l, "refused.example") && strings.Contains(l, "handshake") {
				got++
			}
		}
		if got != want || !res.Success {
			t.Errorf("run %d: %d handshakes with an unlisted host, want %d (%+v)", i, got, want, res.Error)
		}
		for _, h := range res.Receipt.Hosts {
			if strings.HasPrefix(h.Host, "own") && h.Host != fmt.Sprintf("own%d.example", i) {
				t.Errorf("the receipt of run %d holds %s of another run", i, h.Host)
			}
		}
		if want := []string{"strict", "open"}[i%2]; res.Receipt.Policy != want {
			t.Errorf("run %d: the receipt is of policy %q, want %q", i, res.Receipt.Policy, want)
		}
	}
}
