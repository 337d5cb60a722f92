package decisionlog

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/netip"
	"strconv"
	"time"

	"sallyport/firewall/account"
)

// Level is that of the decisions in the log, allowed or not: which of them matter is for
// the reader to say.
const Level = slog.LevelInfo

// A batchHead is where the last line has what the next one, of the same cell and
// time, begins with, too.
type batchHead struct {
	of         *account.Record // nil before the first
	start, end int             // in the lines
}

// appendLine appends the line of r that slog's JSON handler makes of
// account.Record.LogAttrs; a test holds it to that.
func (h *batchHead) appendLine(b []byte, r *account.Record) []byte {
	now := r.Time
	if r.Kind != account.KindDNS {
		now = time.Now() // its record is of when it began
	}
	start := len(b)
	if l := h.of; l != nil && r.Kind == account.KindDNS && r.Kind == l.Kind && r.Time == l.Time && r.Digest == l.Digest &&
		r.Cell == l.Cell && r.Run == l.Run && r.Policy == l.Policy {
		b = append(b, b[h.start:h.end]...)
	} else {
		b = appendHead(b, now, r)
	}
	h.of, h.start, h.end = r, start, len(b)
	return appendRest(b, r)
}

// appendHead appends what is the same for all decisions of one time and cell.
func appendHead(b []byte, now time.Time, r *account.Record) []byte {
	b = now.AppendFormat(append(b, `{"time":"`...), time.RFC3339Nano)
	return appendPlace(append(b, `","level":"INFO","msg":"decision"`...), r)
}

// appendRecord appends the line of r that is r as JSON.
func appendRecord(b []byte, r *account.Record) []byte {
	b = append(r.Time.AppendFormat(append(b, `{"time":"`...), time.RFC3339Nano), '"')
	return appendRest(appendPlace(b, r), r)
}

// appendPlace appends where and by what r was decided.
func appendPlace(b []byte, r *account.Record) []byte {
	b = appendString(append(b, `,"run":`...), r.Run)
	b = appendString(append(b, `,"cell":`...), r.Cell)
	b = appendString(append(b, `,"policy":`...), r.Policy)
	b = appendString(append(b, `,"digest":`...), r.Digest)
	b = appendString(append(b, `,"kind":`...), string(r.Kind))
	return append(b, `,"host":`...)
}

// appendRest appends what follows the head.
func appendRest(b []byte, r *account.Record) []byte {
	b = appendString(b, r.Host)
	b = strconv.AppendUint(append(b, `,"port":`...), uint64(r.Port), 10)
	b = appendString(append(b, `,"verdict":`...), string(r.Verdict))
	b = appendString(append(b, `,"reason":`...), string(r.Reason))
	if r.Allowed != "" {
		b = appendString(append(b, `,"allowed":`...), string(r.Allowed))
	}
	if r.Rule != "" {
		b = appendString(append(b, `,"rule":`...), r.Rule)
	}
	if r.Line != 0 {
		b = strconv.AppendInt(append(b, `,"line":`...), int64(r.Line), 10)
	}
	if r.Detail != "" {
		b = appendString(append(b, `,"detail":`...), r.Detail)
	}
	b = appendAddr(b, `,"client":"`, r.Client)
	b = appendAddr(b, `,"upstream":"`, r.Upstream)
	if r.BytesUp|r.BytesDown|r.DurationMS|r.Count == 0 { // as of any query
		return append(b, `,"bytesUp":0,"bytesDown":0,"durationMs":0}`+"\n"...)
	}
	b = strconv.AppendInt(append(b, `,"bytesUp":`...), r.BytesUp, 10)
	b = strconv.AppendInt(append(b, `,"bytesDown":`...), r.BytesDown, 10)
	b = strconv.AppendInt(append(b, `,"durationMs":`...), r.DurationMS, 10)
	if r.Count != 0 {
		b = strconv.AppendInt(append(b, `,"count":`...), r.Count, 10)
	}
	return append(b, "}\n"...)
}

func appendAddr(b []byte, key string, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return b
	}
	if a.Addr().Zone() != "" {
		b = append(b, key[:len(key)-1]...)
		return appendString(b, a.String()) // a zone is any text
	}
	return append(a.AppendTo(append(b, key...)), '"')
}

// appendString appends s as JSON. Nearly all text of a record is plain.
func appendString(b []byte, s string) []byte {
	if !plain(s) {
		return appendEscaped(b, s)
	}
	return append(append(append(b, '"'), s...), '"')
}

// plain reports whether s is printable ASCII that JSON does not escape. It looks
// at eight bytes at a time, of which it only has to know if there is another one
// among them.
func plain(s string) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		quote, slash, del := w^'"'*ones, w^'\\'*ones, w^0x7F*ones
		below := (w - ' '*ones) &^ w
		zero := (quote-ones)&^quote | (slash-ones)&^slash | (del-ones)&^del
		if (w|below|zero)&tops != 0 {
			return false
		}
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// appendEscaped appends any s as JSON, without the escapes for HTML.
func appendEscaped(b []byte, s string) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil { // a string has no errors
		return append(b, `""`...)
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
