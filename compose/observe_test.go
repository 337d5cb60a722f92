package compose_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMetricsAreForTheHostAlone asks for them from the host and from sandboxes.
//
// probe: N8
// oracle: the metrics, which the host is given at the same addresses
func TestMetricsAreForTheHostAlone(t *testing.T) {
	pages := map[string]string{watched + ".2:9180": "\nsallyport_leases ", watched + ".3:9181": "\nsallyport_executor_runs_limit{"}
	for addr, want := range pages {
		resp, err := st.web.Get("http://" + addr + "/metrics")
		if err != nil {
			t.Fatalf("control: %v", err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("control: the host reads %.200q (%v) at %s, want %q in it", body, err, addr, want)
		}
	}
	for _, policy := range []string{"strict", "open"} {
		out, _ := output(t, policy, attack+fmt.Sprintf(`
for host, port in ((%[1]q + ".2", 9180), (%[1]q + ".3", 9181), (gate, 9180), (gate, 9181)):
    print(f"tcp-{host}-{port}", tcp(host, port))
for host in (%[1]q + ".2", %[1]q + ".3"):
    print("tls-" + host, named(gate, host))
    print("http-" + host, http(gate, f"GET /metrics HTTP/1.1\r\nHost: {host}:9180\r\n\r\n"), http(gate, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n"))
E`, watched))
		if strings.Contains(out, "answer") || strings.Contains(out, "handshake") || strings.Contains(out, " 200 ") {
			t.Errorf("%s: something answered:\n%s", policy, out)
		}
	}
}

func TestDecisionsAreInTheirFile(t *testing.T) {
	_, res := output(t, "strict", `curl -fsS https://docs.example/ >/dev/null; curl -sS https://refused.example/ || true`)
	file := filepath.Join(docker(t, "volume", "inspect", "-f", "{{.Mountpoint}}", stackName+"_decisions"), "decisions.ndjson")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("the file of decisions has the mode %v", info.Mode())
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for l := range strings.Lines(string(content)) {
		for _, what := range []string{`"docs.example"`, `"refused.example"`} {
			if strings.Contains(l, `"run":"`+res.ExecutionID+`"`) && strings.Contains(l, what) {
				found[what] = true
			}
		}
	}
	if len(found) != 2 {
		t.Errorf("of the run %s the file has %v, want a line for each host", res.ExecutionID, found)
	}
}
