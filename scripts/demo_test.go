package scripts_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/libnetwork/ipamutils"

	"sallyport/executor/agent"
)

var setting = regexp.MustCompile(`\bSALLYPORT_[A-Z_]+`)

// TestDemoHasNothingOfItsUsers sets all that the stack takes from an environment,
// as someone who runs a real stack has it, and wants nothing of that in the stack
// of the demo, which is that of the tests and of the benchmark.
func TestDemoHasNothingOfItsUsers(t *testing.T) {
	const mark = "the-users-own"
	dir := filepath.Join(t.TempDir(), mark)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ca := write(t, filepath.Join(dir, "ca.pem"), "", 0o644)
	variables := write(t, filepath.Join(dir, "more.env"), "OPENAI_API_KEY="+mark+"-in-a-file\n", 0o644)
	keys := append(agent.ProviderKeys(), agent.SearchKeys()...)
	env := []string{"SALLYPORT_EXTRA_CA=" + ca, "COMPOSE_ENV_FILES=" + variables, "SALLYPORT_DEMO_STATE=" + t.TempDir()}
	for _, name := range append(keys, settings(t)...) {
		env = append(env, name+"="+mark+"-"+name)
	}

	config := mustBash(t, env, ". scripts/demo-env.sh && . scripts/env.sh && compose config")
	for line := range strings.Lines(config) {
		if strings.Contains(line, mark) {
			t.Errorf("the demo's stack has %s", strings.TrimSpace(line))
		}
	}
	if !strings.Contains(config, "ANTHROPIC_API_KEY: sk-ant-demo-key") {
		t.Errorf("it has not its own key:\n%s", config)
	}

	// The control: a real stack has them.
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "SALLYPORT_") || strings.HasPrefix(v, "COMPOSE_") })
	config = mustBash(t, append(env, "SALLYPORT_MAX_RUNS="+mark, "SALLYPORT_STATE="+dir), ". scripts/env.sh && compose config")
	for _, want := range []string{"OPENAI_API_KEY: " + mark, "TAVILY_API_KEY: " + mark, "SALLYPORT_MAX_RUNS: " + mark} {
		if !strings.Contains(config, want) {
			t.Errorf("control: a real stack lacks %s:\n%s", want, config)
		}
	}
}

// settings are the variables of ours that the stack or its scripts take, but for
// those that are meant for the demo as well.
func settings(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"../compose/*.yaml", "*"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, setting.FindAllString(string(text), -1)...)
		}
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) < 30 {
		t.Fatalf("the stack takes only %v", names)
	}
	meant := []string{"SALLYPORT_TAG", "SALLYPORT_SOCKET", "SALLYPORT_BASE", "SALLYPORT_REFRESH", "SALLYPORT_EXTRA_CA"}
	return slices.DeleteFunc(names, func(n string) bool { return strings.HasPrefix(n, "SALLYPORT_DEMO_") || slices.Contains(meant, n) })
}

var dotted = regexp.MustCompile(`\b\d+\.\d+\.\d+(\.\d+)?\b`)

// TestFixedAddressesAreNoEnginesToGive wants no address of the stack where an engine
// takes subnets for networks that name none. It takes them in turn: every 15th start
// or so one of the stack's own networks got what another was to have, and the stack
// did not start.
func TestFixedAddressesAreNoEnginesToGive(t *testing.T) {
	files, err := filepath.Glob("../compose/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range append(files, "bench", "../compose/stack_test.go") {
		for _, m := range dotted.FindAllStringSubmatch(read(t, file), -1) {
			text := m[0]
			if m[1] == "" { // without its last number
				text += ".0"
			}
			addr, err := netip.ParseAddr(text)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			found++
			for _, pool := range ipamutils.GetLocalScopeDefaultNetworks() {
				if pool.Base.Contains(addr) {
					t.Errorf("%s: %s lies in %s, of which engines take subnets by themselves", file, m[0], pool.Base)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("there are only %d addresses", found)
	}
}
