package compose_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

func TestSandboxLearnsWhyAHostIsRefused(t *testing.T) {
	out, res := output(t, "strict", `curl -sS https://refused.example/ 2>&1; curl -fsS http://policy.sallyport.internal/; curl -fsS 'http://policy.sallyport.internal/why?host=refused.example'`)
	for _, want := range []string{"strict", "docs.example", "refused.example", "not_listed"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page does not say %q:\n%s", want, out)
		}
	}
	wantRow(t, res.Receipt, firewall.PageHost, account.KindHTTP, firewall.ReasonPolicyPage)
}

// TestEditedAllowlistCountsForRunsInFlight takes a host off the list while a run
// has a tunnel to it and another to a host that stays.
func TestEditedAllowlistCountsForRunsInFlight(t *testing.T) {
	file := filepath.Join(st.state, "gate", "allowlist.yaml")
	list, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(content []byte) {
		t.Helper()
		temp := file + ".new"
		if err := os.WriteFile(temp, content, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, file); err != nil {
			t.Fatal(err)
		}
		docker(t, "exec", container(t, "gate", ""), "/gate", "reload")
	}
	without := bytes.Replace(list, []byte("    - {host: .docs.example,"), []byte("    - {host: other.docs.example,"), 1)
	if bytes.Equal(without, list) {
		t.Fatal("the allowlist of the tests has no entry .docs.example")
	}
	t.Cleanup(func() { replace(list) })

	id := begin(t, bash("strict", attack+`
import sys, time
c = ssl._create_unverified_context()
def connect(n): return c.wrap_socket(socket.create_connection((gate, 443), 4), server_hostname=n)
gone, kept = connect("docs.example"), connect("api.anthropic.com")
print("connected", flush=True)
gone.settimeout(30)
try: gone.recv(1); print("cut", flush=True)
except TimeoutError: print("still open", flush=True)
except OSError: print("cut", flush=True)
kept.settimeout(2)
try: kept.recv(1); print("kept closed")
except TimeoutError: print("kept alive")
except OSError: print("kept closed")
print("again", tls(gate, 443, "docs.example"))
E`))
	replace(without)
	res := finish(t, id)
	got := lines(res.Output)
	if _, cut := got["cut"]; !cut || got["kept"] != "alive" || got["again"] == "handshake" {
		t.Errorf("want the first tunnel cut, the second alive and no new one to the first host:\n%s", res.Output)
	}
	wantRow(t, res.Receipt, "docs.example", account.KindTLS, firewall.ReasonPolicyChanged)
	if len(res.Receipt.Changes) != 1 || res.Receipt.Changes[0].Digest == res.Receipt.Digest {
		t.Errorf("the receipt tells of the changes %+v, want one", res.Receipt.Changes)
	}
}
