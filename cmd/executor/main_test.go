package main

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/executor/agent"
	"sallyport/executor/secrets"
)

func TestSettings(t *testing.T) {
	s, err := parseSettings([]string{"PATH=/bin"})
	if err != nil {
		t.Fatal(err)
	}
	if s.State != "/var/lib/sallyport" || s.Listen != "127.0.0.1:7280" || s.TokenFile != "/var/lib/sallyport/token" || s.Memory != 2<<30 ||
		s.OutputBytes != 64<<20 || s.WorkspaceBytes != 10<<30 || s.DiskFloor != 2<<30 || s.Timeout != 30*time.Minute || s.MaxTimeout != 6*time.Hour ||
		s.CellPool != netip.MustParsePrefix("198.18.0.0/16") || s.AgentUID != 10001 || len(s.Roots) != 0 || s.SecretsDir != "/var/lib/sallyport/secrets" {
		t.Errorf("defaults = %+v", s)
	}
	s, err = parseSettings([]string{
		"SALLYPORT_STATE=/state", "SALLYPORT_ROOTS=/a:/b", "SALLYPORT_MEMORY=512m", "SALLYPORT_TIMEOUT=90s", "SALLYPORT_CPUS=0.5", "SALLYPORT_QUEUE=",
		"ANTHROPIC_API_KEY=key", "OPENAI_API_KEY=", "EXA_API_KEY=exa", "AWS_SECRET_ACCESS_KEY=other",
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.TokenFile != "/state/token" || !slices.Equal(s.Roots, []string{"/a", "/b"}) || s.Memory != 512<<20 || s.CPUs != 0.5 || s.Queue != 64 {
		t.Errorf("settings = %+v", s)
	}
	s, err = parseSettings([]string{"SALLYPORT_EXTRA_CA=/ca", "SALLYPORT_GITHUB_APP_KEY_FILE=/key", "SALLYPORT_GITHUB_TOKEN_FILE=/pat", "SALLYPORT_GITHUB_PROFILES=/profiles"})
	if err != nil || !maps.Equal(s.secrets(), map[string]string{"SALLYPORT_TOKEN_FILE": "/var/lib/sallyport/token", "SALLYPORT_EXTRA_CA": "/ca", "SALLYPORT_API_SOCKET": "/var/lib/sallyport/api.sock", "SALLYPORT_SECRETS_DIR": "/var/lib/sallyport/secrets",
		"SALLYPORT_GITHUB_APP_KEY_FILE": "/key", "SALLYPORT_GITHUB_TOKEN_FILE": "/pat", "SALLYPORT_GITHUB_PROFILES": "/profiles"}) {
		t.Errorf("secrets %v, %v", s.secrets(), err)
	}
	s, err = parseSettings([]string{"SALLYPORT_POLICIES=strict, build"})
	if err != nil || !slices.Equal(s.service(nil).Policies, []string{"strict", "build"}) {
		t.Errorf("policies %q, %v", s.Policies, err)
	}
	for _, bad := range []string{"POLICIES=strict,", "MEMORY=plenty", "MEMORY=-1", "TIMEOUT=30", "CELL_POOL=10.0.0.0", "MAX_RUNS=many"} {
		if _, err := parseSettings([]string{"SALLYPORT_" + bad}); err == nil {
			t.Errorf("SALLYPORT_%s was taken", bad)
		}
	}
}

// TestSecretSources: keys and secrets of the environment, and files, which are found in
// the state directory unless a setting names another. Nothing else of the environment is one.
func TestSecretSources(t *testing.T) {
	state := t.TempDir()
	sources := func(variables ...string) (settings, secrets.Sources) {
		t.Helper()
		s, err := parseSettings(append(variables, "SALLYPORT_STATE="+state))
		if err != nil {
			t.Fatal(err)
		}
		from, err := s.secretSources()
		if err != nil {
			t.Fatal(err)
		}
		return s, from
	}
	_, from := sources("ANTHROPIC_API_KEY=key-of-anthropic", "OPENAI_API_KEY=", "EXA_API_KEY=key-of-exa-0", "AWS_SECRET_ACCESS_KEY=other-than-a-key", "SALLYPORT_SECRET_RELEASE_TOKEN=token-of-release", "SALLYPORT_TOKEN=token-of-callers")
	if info, err := os.Stat(filepath.Join(state, "secrets")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of secrets: %v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(state, "secrets", "OPENAI_API_KEY"), []byte("key-of-openai\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := from.Check(t.Context())
	if names := slices.Sorted(maps.Keys(found)); err != nil || !slices.Equal(names, []string{"ANTHROPIC_API_KEY", "EXA_API_KEY", "OPENAI_API_KEY", "release-token"}) {
		t.Errorf("found %v, %v", names, err)
	}
	_, from = sources("OPENAI_API_KEY=another-of-openai")
	if _, err := from.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "the directory "+state+"/secrets and the environment both have it") {
		t.Errorf("a key in two places: %v", err)
	}
	models := agent.Models()
	openai := models[slices.IndexFunc(models, func(m string) bool { return strings.HasPrefix(m, "openai/") })]
	for model, want := range map[string]string{
		openai:                        "",
		"anthropic/claude-sonnet-4-6": "but the operator has set no key for anthropic: ANTHROPIC_API_KEY is missing",
		"anthropic/claude":            "has no such model",
		"sonnet":                      "must be provider/model",
	} {
		s, from := sources("SALLYPORT_MODEL=" + model)
		if err := s.checkModel(t.Context(), from); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("SALLYPORT_MODEL=%s: %v", model, err)
		}
	}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		name    string
		args    []string
		environ []string
		err     string // is part of the error; empty for none
	}{
		{"version", []string{"version"}, nil, ""},
		{"unknown arguments", []string{"serve"}, nil, "usage: executor"},
		{"health without an executor", []string{"health"}, []string{"SALLYPORT_LISTEN=0.0.0.0:1"}, "127.0.0.1:1"},
		{"bad address", []string{"health"}, []string{"SALLYPORT_LISTEN=nowhere"}, "address"},
		{"bad settings", nil, []string{"SALLYPORT_PIDS=x"}, "settings"},
		{"short token", nil, []string{"SALLYPORT_STATE=" + dir, "SALLYPORT_TOKEN=short", "SALLYPORT_STACK=.."}, "stack"},
		{"bad token file", nil, []string{"SALLYPORT_STATE=" + dir, "SALLYPORT_TOKEN_FILE=" + dir}, "token"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), tt.args, tt.environ, &out)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.err)
		}
	}
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "absent.sock"))
	if err := run(t.Context(), nil, []string{"SALLYPORT_STATE=" + dir}, new(bytes.Buffer)); err == nil || !strings.Contains(err.Error(), "absent.sock") {
		t.Errorf("without an engine: %v", err)
	}
}

// TestWarnOfRoots: a root is told of where other users can run what an agent leaves.
func TestWarnOfRoots(t *testing.T) {
	open, closed := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(open, 0o755), os.Chmod(closed, 0o750)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	warnOfRoots([]string{open, closed}, slog.New(slog.NewTextHandler(&out, nil)))
	if got := strings.Count(out.String(), "level=WARN"); got != 1 || !strings.Contains(out.String(), "set-id") || !strings.Contains(out.String(), "root="+open) {
		t.Errorf("%d warnings: %s", got, &out)
	}
	if !setIDCounts(0o755, unix.ST_RELATIME) || setIDCounts(0o755, unix.ST_RELATIME|unix.ST_NOSUID) {
		t.Error("what a mount says of set-id files does not count")
	}
}

// TestTiers: no tier is wider than the settings, and the small one is smaller where they
// give more.
func TestTiers(t *testing.T) {
	for memory, want := range map[string]int64{"2GiB": 256 << 20, "128MiB": 128 << 20} {
		s, err := parseSettings([]string{"SALLYPORT_MEMORY=" + memory})
		if err != nil {
			t.Fatal(err)
		}
		tiers := s.tiers()
		standard, small := tiers[0], tiers[1]
		if standard.Name != "standard" || small.Name != "small" || !small.Limits.Within(standard.Limits) || small.Limits.MemoryBytes != want || small.Limits.TmpBytes > want {
			t.Errorf("%s: %+v", memory, tiers)
		}
		if memory == "2GiB" && standard.Limits.Within(small.Limits) {
			t.Errorf("control: the standard tier is no wider: %+v", tiers)
		}
	}
}
