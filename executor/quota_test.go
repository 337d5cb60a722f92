package executor_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
)

// TestQuotasOfPlaces: of a tenant's runs so many run and wait as may, whatever places are
// free, and another tenant's begin beside those that wait.
//
// probe: T5
// oracle: the other tenant's run, which runs; the waiting one, once the first has ended
func TestQuotasOfPlaces(t *testing.T) {
	h := start(t, tenants(t, ", quotas: {running: 1, waiting: 1}", ""), func(c *executor.Config) { c.MaxRuns = 3 })
	acme, beta := h.token("?tenant=acme", "ci", "run", "read").Token, h.token("?tenant=beta", "ci", "run", "read").Token
	await := h.awaitState
	first := h.begin(command("sleep 60"), bearer(acme)...)
	await(first, acme, api.StateRunning)
	second := h.begin(command("sleep 60"), bearer(acme)...)
	resp, data := h.do(http.MethodPost, "/v1/executions", command("true"), bearer(acme)...)
	p := decode[api.Problem](t, resp, data, http.StatusTooManyRequests)
	if p.Code != api.CodeQuota || !p.Retryable || resp.Header.Get("Retry-After") != "5" || p.Details["quota"] != "waiting" || p.Details["limit"] != 1.0 {
		t.Errorf("%+v, Retry-After %q", p, resp.Header.Get("Retry-After"))
	}
	theirs := h.begin(command("sleep 60"), bearer(beta)...)
	await(theirs, beta, api.StateRunning)
	if state := h.state(second, acme); state != api.StateQueued {
		t.Errorf("beside free places the second is %s", state)
	}
	h.do(http.MethodDelete, "/v1/executions/"+first, "", bearer(acme)...)
	await(second, acme, api.StateRunning)
	for id, token := range map[string]string{second: acme, theirs: beta} {
		h.do(http.MethodDelete, "/v1/executions/"+id, "", bearer(token)...)
		await(id, token, api.StateFinished)
	}
}

// awaitState waits until a run is in a state.
func (h *harness) awaitState(id, token, state string) {
	h.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); h.state(id, token) != state; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			h.t.Fatalf("%s is %s, not %s", id, h.state(id, token), state)
		}
	}
}

// TestQuotaOfBytes: a tenant whose kept runs take what they may begins no more.
//
// probe: T5
// oracle: another tenant's run; the same tenant's first
func TestQuotaOfBytes(t *testing.T) {
	h := start(t, tenants(t, ", quotas: {stored: 20KiB}", ""))
	acme, beta := h.token("?tenant=acme", "ci", "run", "read").Token, h.token("?tenant=beta", "ci", "run", "read").Token
	const script = "head -c 30000 /dev/zero | tr '\\0' x"
	for _, token := range []string{acme, beta, beta} {
		if res := h.post(command(script), bearer(token)...); !res.Success {
			t.Fatalf("control: %+v", res.Error)
		}
	}
	p := h.refusedRun(http.StatusTooManyRequests, command("true"), acme)
	if p.Code != api.CodeQuota || p.Details["quota"] != "stored" || p.Details["limit"] != 20480.0 || p.Details["used"].(float64) < 30000 {
		t.Errorf("%+v", p)
	}
}

// TestQuotaOfMoney: a tenant's runs cost no more than its quota in 24 hours, one after the
// other or side by side, and each run gets no more than what is left.
//
// probe: T5
// oracle: another tenant's run, which costs the same
func TestQuotaOfMoney(t *testing.T) {
	cost := start(t).recorded("demo", "true").Usage.CostUSD
	h := start(t, tenants(t, fmt.Sprintf(", quotas: {costPerDay: %.6f}", cost*1.5), ""))
	h.recorded("demo", "true")
	acme, beta := h.token("?tenant=acme", "ci", "run", "read").Token, h.token("?tenant=beta", "ci", "run", "read").Token
	for _, token := range []string{acme, beta, beta} {
		if res := h.post(piRequest, bearer(token)...); !res.Success || res.CostUSD < cost*.99 {
			t.Fatalf("control: %+v", res)
		}
	}
	// What is left is less than a run costs.
	h.recorded("demo", "sleep 60")
	res := h.post(piRequest, bearer(acme)...)
	wantCode(t, res, api.CodeBudget)
	if budget, ok := res.Error.Details["budgetUsd"].(float64); !ok || budget > cost*.51 {
		t.Errorf("the second run had the budget %v", res.Error.Details)
	}
	p := h.refusedRun(http.StatusTooManyRequests, piRequest, acme)
	if p.Code != api.CodeQuota || p.Details["quota"] != "costPerDay" || !strings.Contains(p.Detail, "24 hours") {
		t.Errorf("%+v", p)
	}

	// Of two side by side the one ends that takes what the other has left.
	side := start(t, tenants(t, fmt.Sprintf(", quotas: {costPerDay: %.6f}", cost*1.5), ""))
	side.recorded("demo", "sleep 60")
	both := side.token("?tenant=acme", "ci", "run", "read").Token
	ids := []string{side.begin(piRequest, bearer(both)...), side.begin(piRequest, bearer(both)...)}
	for ended := ""; ended == ""; time.Sleep(10 * time.Millisecond) {
		for i, id := range ids {
			if side.state(id, both) == api.StateFinished {
				ended = ids[1-i]
			}
		}
		if ended != "" {
			side.do(http.MethodDelete, "/v1/executions/"+ended, "", bearer(both)...)
		}
	}
	codes := map[api.Code]int{}
	for _, id := range ids {
		for side.state(id, both) != api.StateFinished {
			time.Sleep(10 * time.Millisecond)
		}
		resp, data := side.do(http.MethodGet, "/v1/executions/"+id, "", bearer(both)...)
		res := decode[api.Execution](t, resp, data, http.StatusOK).Result
		codes[res.Error.Code]++
	}
	if codes[api.CodeBudget] == 0 {
		t.Errorf("side by side: %v", codes)
	}
}

// TestWaitsItsTurn: the runs of a tenant that has many do not hold up those of one that has
// few, though they came first; who waits is told where it stands, and does not wait for ever.
func TestWaitsItsTurn(t *testing.T) {
	h := start(t, tenants(t, ", weight: 2", ""), func(c *executor.Config) { c.MaxRuns, c.Queue = 1, 20 })
	acme, beta := h.token("?tenant=acme", "ci", "run", "read").Token, h.token("?tenant=beta", "ci", "run", "read").Token
	await := h.awaitState
	const long = "sleep 60"
	runs := h.begin(command(long), bearer(acme)...)
	await(runs, acme, api.StateRunning)
	second, third := h.begin(command(long), bearer(acme)...), h.begin(command(long), bearer(acme)...)
	other := h.begin(command(long), bearer(beta)...)
	for _, tt := range []struct {
		id, token string
		ahead     int
	}{{second, acme, 0}, {third, acme, 1}, {other, beta, 0}} {
		_, data := h.do(http.MethodGet, "/v1/executions/"+tt.id+"/events", "", bearer(tt.token)...)
		var place *api.QueuePlace
		for line := range strings.Lines(string(data)) {
			var ev api.Event
			if err := json.Unmarshal([]byte(line), &ev); err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			if ev.Stage == "queue" && place == nil {
				place = ev.Queue
			}
		}
		if place == nil || place.Ahead != tt.ahead || place.ExpectedWaitMS <= 0 {
			t.Errorf("%s is told %+v, want %d ahead", tt.id, place, tt.ahead)
		}
	}
	h.do(http.MethodDelete, "/v1/executions/"+runs, "", bearer(acme)...)
	await(other, beta, api.StateRunning)
	if state := h.state(second, acme); state != api.StateQueued {
		t.Errorf("the second of who has had a place is %s", state)
	}

	h = start(t, func(c *executor.Config) { c.MaxRuns, c.QueueTime = 1, 500*time.Millisecond })
	h.awaitText(h.begin(command("echo begun; sleep 60")), "begun")
	res := h.finish(h.begin(command("true")))
	wantCode(t, res, api.CodeBusy)
	if !res.Error.Retryable || res.Error.Details["retryAfterMs"].(float64) < 5000 || res.Timings.Queue != -1 {
		t.Errorf("%+v, %+v", res.Error, res.Timings)
	}
}
