package account

import "log/slog"

// The keys of a decision record in the log: the same as in its JSON.
const (
	keyRun       = "run"
	keyCell      = "cell"
	keyPolicy    = "policy"
	keyDigest    = "digest"
	keyKind      = "kind"
	keyHost      = "host"
	keyPort      = "port"
	keyVerdict   = "verdict"
	keyReason    = "reason"
	keyAllowed   = "allowed"
	keyRule      = "rule"
	keyLine      = "line"
	keyDetail    = "detail"
	keyClient    = "client"
	keyUpstream  = "upstream"
	keyBytesUp   = "bytesUp"
	keyBytesDown = "bytesDown"
	keyDuration  = "durationMs"
	keyCount     = "count"
)

// LogAttrs is r for a structured log, without its time, which the log has. What
// is absent from the JSON of r is absent here.
func (r Record) LogAttrs() []slog.Attr {
	attrs := append(make([]slog.Attr, 0, 19),
		slog.String(keyRun, r.Run),
		slog.String(keyCell, r.Cell),
		slog.String(keyPolicy, r.Policy),
		slog.String(keyDigest, r.Digest),
		slog.String(keyKind, string(r.Kind)),
		slog.String(keyHost, r.Host),
		slog.Int(keyPort, int(r.Port)),
		slog.String(keyVerdict, string(r.Verdict)),
		slog.String(keyReason, string(r.Reason)),
	)
	if r.Allowed != "" {
		attrs = append(attrs, slog.String(keyAllowed, string(r.Allowed)))
	}
	if r.Rule != "" {
		attrs = append(attrs, slog.String(keyRule, r.Rule))
	}
	if r.Line != 0 {
		attrs = append(attrs, slog.Int(keyLine, r.Line))
	}
	if r.Detail != "" {
		attrs = append(attrs, slog.String(keyDetail, r.Detail))
	}
	if r.Client.IsValid() {
		attrs = append(attrs, slog.String(keyClient, r.Client.String()))
	}
	if r.Upstream.IsValid() {
		attrs = append(attrs, slog.String(keyUpstream, r.Upstream.String()))
	}
	attrs = append(attrs,
		slog.Int64(keyBytesUp, r.BytesUp),
		slog.Int64(keyBytesDown, r.BytesDown),
		slog.Int64(keyDuration, r.DurationMS),
	)
	if r.Count != 0 {
		attrs = append(attrs, slog.Int64(keyCount, r.Count))
	}
	return attrs
}
