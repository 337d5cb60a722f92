package executor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/dispatch"
	"sallyport/firewall/account"
)

// TestGitHubRefresh: a run that is longer than its token's life gets fresh ones
// without a restart, and leaves none of them alive.
func TestGitHubRefresh(t *testing.T) {
	g := startGitHub(t)
	g.fault(`{"tokenLife":"6s"}`)
	h := start(t, g.access(false))
	script := `first=$(cat "${GIT_CONFIG_SYSTEM%/*}/token"); n=0
while [ "$(cat "${GIT_CONFIG_SYSTEM%/*}/token")" = "$first" ]; do sleep 0.1; n=$((n+1)); [ $n -lt 400 ] || exit 9; done
cat "${GIT_CONFIG_SYSTEM%/*}/token"; echo; [ "$GITHUB_TOKEN" = "$first" ] && echo changed`
	res := h.post(with(command(script), readAccess))
	if !res.Success || !strings.Contains(res.Output, "[GITHUB_TOKEN redacted]\nchanged\n") {
		t.Fatalf("%+v, %v", res, res.Error)
	}
	if res.Github.Refreshed == 0 || !res.Github.Revoked {
		t.Errorf("receipt %+v", res.Github)
	}
	g.fault("")
	states := g.states()
	if len(states) < 2 || slices.Contains(states, "live") {
		t.Errorf("tokens are %v", states)
	}
	h.wantClean()
}

// TestGitHubDeliveryFails: a sandbox that keeps fresh tokens from being put into it
// has none minted beyond those that its time takes, and gets the last one once it
// lets it in.
//
// probe: X23
// oracle: GitHub's list of tokens, and the records of those that may live
func TestGitHubDeliveryFails(t *testing.T) {
	g := startGitHub(t)
	const life = 4 * time.Second
	g.fault(`{"tokenLife":"4s"}`)
	h := start(t, g.access(false))
	began := time.Now()
	id := h.begin(with(command(`d="${GIT_CONFIG_SYSTEM%/*}"; rm -rf "$d"; touch "$d"; sleep 10; echo broken; rm "$d"; mkdir "$d"
n=0; until [ -s "$d/token" ]; do sleep 0.1; n=$((n+1)); [ $n -lt 300 ] || exit 9; done; cat "$d/token"`), readAccess))
	h.awaitText(id, "broken")
	left, err := os.ReadDir(filepath.Join(h.config.State, "tokens"))
	if err != nil || len(left) > 3 {
		t.Errorf("%d records, %v", len(left), err)
	}
	res := h.finish(id)
	minted, most := len(g.states()), 2+int(time.Since(began)/(life*3/4))
	if minted < 3 || minted > most {
		t.Errorf("%d tokens were minted, want 3 to %d", minted, most)
	}
	if !res.Success || !strings.Contains(res.Output, "[GITHUB_TOKEN redacted]") || res.Github.Refreshed == 0 || !res.Github.Revoked {
		t.Errorf("%+v, %v, receipt %+v", res, res.Error, res.Github)
	}
	g.fault("")
	if states := g.states(); slices.Contains(states, "live") {
		t.Errorf("tokens are %v", states)
	}
	warned := 0
	for _, ev := range h.events(id, "") {
		if ev.Type == api.EventWarning && strings.Contains(ev.Text, "could not be replaced") {
			warned++
		}
	}
	if warned < 2 {
		t.Errorf("%d warnings", warned)
	}
	h.wantClean()
}

// TestGitHubShutdown: an executor that is told to end while GitHub does not answer puts
// the run's end on record all the same, and the next one revokes its tokens.
//
// oracle: the result on record, and the state of the tokens at GitHub
func TestGitHubShutdown(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	id := h.begin(with(command("echo begun; sleep 60"), readAccess))
	h.awaitText(id, "begun")
	g.fault(`{"only":"revoke","delay":"60s"}`)
	h.end()
	if states := g.states(); !slices.Equal(states, []string{"live"}) {
		t.Errorf("control: tokens are %v", states)
	}
	g.fault("")
	h.boot()
	defer h.end()
	x := get[api.Execution](h, "/v1/executions/"+id)
	wantCode(t, *x.Result, api.CodeCancelled)
	if r := x.Result.Github; r == nil || r.Revoked || r.RevokeError == "" {
		t.Errorf("receipt %+v", r)
	}
	if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
		t.Errorf("tokens are %v", states)
	}
	h.wantClean()
}

// TestGitHubRevokedLater: a token that could not be revoked at the end of its run
// is told of, and revoked by the next executor.
func TestGitHubRevokedLater(t *testing.T) {
	g := startGitHub(t)
	h := start(t, g.access(false))
	g.fault(`{"only":"revoke","status":403,"body":"{}"}`)
	res := h.post(with(command("true"), readAccess))
	if !res.Success || res.Github.Revoked || res.Github.RevokeError == "" {
		t.Errorf("receipt %+v", res.Github)
	}
	h.end()
	if states := g.states(); !slices.Equal(states, []string{"live"}) {
		t.Fatalf("control: tokens are %v", states)
	}
	g.fault("")
	h.boot()
	deadline := time.Now().Add(30 * time.Second)
	for !slices.Equal(g.states(), []string{"revoked"}) {
		if time.Now().After(deadline) {
			t.Fatalf("tokens are %v", g.states())
		}
		time.Sleep(20 * time.Millisecond)
	}
	h.end()
	if left, err := os.ReadDir(filepath.Join(h.config.State, "tokens")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// leftToken makes an executor that ends with one token that it could not revoke.
func leftToken(t *testing.T, g *testGitHub) *harness {
	t.Helper()
	h := start(t, g.access(false))
	g.fault(`{"only":"revoke","status":403,"body":"{}"}`)
	defer g.fault("")
	h.post(with(command("true"), readAccess))
	h.end()
	if states := g.states(); !slices.Equal(states, []string{"live"}) {
		t.Fatalf("control: tokens are %v", states)
	}
	return h
}

// TestGitHubRevokedWithoutEngine: an executor that cannot start for want of an engine
// revokes all the same what the last one left.
//
// probe: L1
// oracle: the state of the token at GitHub
func TestGitHubRevokedWithoutEngine(t *testing.T) {
	g := startGitHub(t)
	h := leftToken(t, g)
	h.config.Boot = func(context.Context) (map[string]account.Receipt, error) {
		if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
			t.Errorf("when the engine is asked, tokens are %v", states)
		}
		return nil, errTest
	}
	if _, err := executor.New(h.config); !errors.Is(err, errTest) {
		t.Fatalf("it starts: %v", err)
	}
	if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
		t.Errorf("tokens are %v", states)
	}
}

// TestGitHubRevokeLeft: the same for one that has not come as far as New, but never
// beside one that runs.
func TestGitHubRevokeLeft(t *testing.T) {
	g := startGitHub(t)
	h := leftToken(t, g)
	if err := dispatch.RevokeLeft(h.config.State, nil, h.config.Log); err != nil || !strings.Contains(h.log.String(), "cannot be revoked with the settings") {
		t.Errorf("without access to GitHub: %v, %s", err, h.log)
	}
	if err := dispatch.RevokeLeft(h.config.State, h.config.GitHub, h.config.Log); err != nil {
		t.Error(err)
	}
	if states := g.states(); !slices.Equal(states, []string{"revoked"}) {
		t.Errorf("tokens are %v", states)
	}
	h.boot()
	defer h.end()
	id := h.begin(with(command("echo begun; sleep 60"), readAccess))
	h.awaitText(id, "begun")
	if err := dispatch.RevokeLeft(h.config.State, h.config.GitHub, h.config.Log); err == nil || !slices.Equal(g.states(), []string{"revoked", "live"}) {
		t.Errorf("beside one that runs: %v, tokens are %v", err, g.states())
	}
}
