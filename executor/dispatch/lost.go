package dispatch

import (
	"log/slog"
	"slices"
	"strings"

	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/backend"
	"sallyport/executor/place"
	"sallyport/executor/redact"
	"sallyport/executor/store"
	"sallyport/executor/task"
	"sallyport/executor/tokens"
	"sallyport/firewall/account"
)

// An aftermath is what a start learns of runs whose executor died.
type aftermath struct {
	backends *backend.Registry
	// redactorFor makes the redactor of a run that named these secrets.
	redactorFor func(secrets []string) *redact.Redactor
	receipts    map[string]account.Receipt // the gate's, by run
	tokens      map[string][]tokens.Ending // by run
	audit       *auditor
	log         *slog.Logger
}

// Where the receipt of a lost run comes from, as the error's details say.
const (
	receiptOfGate   = "gate"   // all of it
	receiptOfEvents = "events" // of decisions that are alike the first only
)

// lost is the result of a run whose executor died: what is on record of it, with what
// became since of its lease and its tokens.
func (a *aftermath) lost(left store.Remains) api.Result {
	failure := &api.Error{
		Code:      api.CodeLost,
		Message:   "the executor ended while the run was under way",
		Retryable: true,
		Details:   map[string]any{"receipt": receiptOfEvents},
	}
	m := left.Meta
	if m.Dir != "" { // before anybody reads that the run has ended
		place.StripSetID(m.Dir, m.UID, a.log.With("run", m.ID))
	}
	res := task.Failed(m.ID, m.Accepted, a.backends.Isolation(m.Backend), unreached(), failure)
	// The clock since then says nothing about the run.
	res.DurationMS, res.Timings.Total = 0, -1
	var named []string
	if left.Policy != nil {
		named = left.Policy.Secrets
	}
	redactor := a.redactorFor(named)
	addEvents(&res, left)
	if final, ok := a.receipts[m.ID]; ok {
		failure.Details["receipt"] = receiptOfGate
		res.Receipt = final
		for i := range final.Hosts { // as in a result that the run's own executor made
			final.Hosts[i].Host = redactor.String(final.Hosts[i].Host)
		}
	}
	if left.Github != nil {
		res.Github = left.Github
		a.addEndings(res.Github, m.ID, redactor)
	}
	if r := a.audit.add(left, audit.StateLost, &res); a.audit.ended != nil {
		a.audit.ended(r, left.Events)
	}
	return res
}

// addEvents puts into a result what the events of its run tell.
func addEvents(res *api.Result, left store.Remains) {
	ledger, digest := account.NewLedger(left.Meta.Policy, ""), ""
	var total api.Usage
	var said outputText
	for ev := range left.Events {
		switch {
		case ev.Type == api.EventSession:
			res.SessionID = ev.SessionID
		case ev.Type == api.EventUsage && ev.Usage != nil:
			total.Add(*ev.Usage)
			if ev.MessageID != "" {
				res.Turns++
			}
		case ev.Type == api.EventEgress && ev.Decision != nil:
			if digest == "" {
				digest = ev.Decision.Digest
			}
			ledger.Add(*ev.Decision)
		}
		said.add(ev)
	}
	res.CostUSD, res.InputTokens, res.OutputTokens = total.CostUSD, total.InputTokens, total.OutputTokens
	res.CacheReadInputTokens, res.CacheCreationInputTokens = total.CacheReadTokens, total.CacheCreationTokens
	res.Output, res.OutputTruncated = said.text.String(), said.cut
	res.Receipt = ledger.Receipt()
	res.Receipt.Digest = digest
}

// maxOutputText is the most of a run's output that a result has, in bytes.
const maxOutputText = 1 << 20

// outputText is the output as events have it: all that a command printed, or an agent's
// last message.
type outputText struct {
	message string
	text    strings.Builder
	cut     bool
}

func (o *outputText) add(ev api.Event) {
	if ev.MessageID != "" && ev.MessageID != o.message {
		*o = outputText{message: ev.MessageID}
	}
	if ev.Type != api.EventOutput && ev.Type != api.EventText || o.cut {
		return
	}
	text := ev.Text
	if ev.Type == api.EventText && o.text.Len() > 0 {
		text = "\n" + text
	}
	if left := maxOutputText - o.text.Len(); len(text) > left {
		text, o.cut = strings.ToValidUTF8(text[:left], ""), true
	}
	o.text.WriteString(text)
}

// addEndings says in a receipt what became of the run's tokens.
func (a *aftermath) addEndings(r *api.GithubReceipt, run string, redactor *redact.Redactor) {
	r.Revoked, r.RevokeError = r.Downscoped, ""
	if !r.Downscoped { // the operator's own, which no end of a run revokes
		return
	}
	// Of a directory that cannot be read the keeper says so under no run's name.
	for _, e := range slices.Concat(a.tokens[run], a.tokens[""]) {
		why := ""
		switch e.Fate {
		case tokens.Left:
			why = "not yet: "
			if e.Err != nil {
				why += e.Err.Error()
			}
		case tokens.Foreign:
			why = "the settings have changed since; it lives until it expires"
		case tokens.Unreadable:
			why = "its record cannot be read; it lives until it expires, within the hour"
		default:
			continue
		}
		r.Revoked, r.RevokeError = false, redactor.String(why)
	}
}
