package policy_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor/policy"
)

// TestLive: a changed file is in force at once; one with faults, or none, leaves the
// last good one there, and says why.
func TestLive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profiles.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	if _, err := policy.Open(path, logger); err == nil {
		t.Error("a file that is not there is opened")
	}
	write("version: 1\n")
	if _, err := policy.Open(path, logger); err == nil || !strings.Contains(err.Error(), "profiles.yaml:1:1: profiles: is missing") {
		t.Errorf("a wrong file is opened: %v", err)
	}
	write(modal)
	live, err := policy.Open(path, logger)
	if err != nil {
		t.Fatal(err)
	}
	first := live.Profiles()
	if first.Digest() != live.Profiles().Digest() || live.Stale() != nil {
		t.Error("it changes by itself")
	}
	for i, text := range []string{"version: 2\n", "", "\xff", "remove"} {
		if write(text); text == "remove" {
			os.Remove(path)
		}
		if live.Profiles().Digest() != first.Digest() || live.Stale() == nil {
			t.Errorf("%d: a wrong file is in force: %v", i, live.Stale())
		}
	}
	if n := strings.Count(log.String(), "profiles refused"); n != 4 {
		t.Errorf("%d lines about refused files:\n%s", n, log.String())
	}
	next := strings.Replace(modal, "policyVersion: 1", "policyVersion: 2", 1)
	write(next)
	if live.Profiles().Version() != 2 || live.Stale() != nil {
		t.Errorf("the mended file is not in force: %v", live.Stale())
	}
	write(strings.Replace(next, "mode: none", "mode: per-task", 1))
	if live.Profiles().Digest() == first.Digest() || !strings.Contains(log.String(), "no higher policyVersion") {
		t.Errorf("other profiles under the same number:\n%s", log.String())
	}
	// Changed in place, with the same length, within one tick of the clock.
	for _, mode := range []string{"per-task", "none    ", "per-task"} {
		write(strings.Replace(next, "mode: none", "mode: "+mode, 1))
		e, denial := live.Profiles().Resolve(policy.Query{Tenant: policy.Operator}, policy.Installed{DefaultEgress: "strict"})
		if denial != nil || e.SandboxMode != strings.TrimSpace(mode) {
			t.Errorf("mode %s: %+v, %v", mode, e, denial)
		}
	}
	byDefault, err := policy.Open("", logger)
	if err != nil || byDefault.Profiles().Digest() != policy.Default().Digest() {
		t.Error(err)
	}
}
