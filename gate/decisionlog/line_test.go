package decisionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// slogLine is the line of r that log/slog writes.
func slogLine(t testing.TB, now time.Time, r account.Record) string {
	t.Helper()
	var b bytes.Buffer
	entry := slog.NewRecord(now, Level, "decision", 0)
	entry.AddAttrs(r.LogAttrs()...)
	if err := slog.NewJSONHandler(&b, nil).Handle(context.Background(), entry); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FuzzLine wants the bytes that log/slog writes, whatever the record holds: of the
// first of a batch, and of those that take over its head or must not.
//
// probe: F9
// oracle: the line of the log, decoded by another library
func FuzzLine(f *testing.F) {
	f.Add("run-1", "allowed.example", "A", ".allowed.example", 3, uint16(0), []byte{127, 0, 0, 1}, uint16(53), int64(0))
	f.Add("", "", "", "", 0, uint16(443), []byte(nil), uint16(0), int64(-1))
	f.Add("r", `a\000.example`, "quote \" and <html> & \x00\x1b[31m\n\t\b\f", "\u2028\u202e\xff", -7, uint16(65535),
		bytes.Repeat([]byte{0xfe}, 16), uint16(1), int64(1<<62))
	f.Fuzz(func(t *testing.T, run, host, detail, rule string, line int, port uint16, addr []byte, clientPort uint16, up int64) {
		ip, _ := netip.AddrFromSlice(addr)
		r := account.Record{
			Run: run, Cell: "cell-1", Policy: "strict", Digest: "sha256:00", Kind: account.KindDNS, Host: host, Port: port,
			Verdict: firewall.Deny, Reason: firewall.ReasonNotListed, Allowed: firewall.Reason(rule), Rule: rule, Line: line, Detail: detail,
			BytesUp: up, BytesDown: ^up, DurationMS: up / 3,
		}
		if ip.IsValid() {
			r.Client, r.Upstream = netip.AddrPortFrom(ip, clientPort), netip.AddrPortFrom(ip.Unmap(), port)
		}
		r.Time = time.Unix(up%4e9, int64(line)%1e9)
		if y := r.Time.Year(); y < 0 || y > 9999 {
			return
		}
		sameRecord(t, r)
		next, other := r, r
		next.Host, next.Rule, next.Detail, next.Line, next.Client = detail, run, host, -line, r.Upstream
		other.Run, other.Cell, other.Policy, other.Digest = host, rule, detail, run
		sameBatch(t, r, next, other, r)
	})
}

// sameBatch wants the lines of a batch of queries to be those that log/slog writes
// of them one by one.
func sameBatch(t *testing.T, records ...account.Record) {
	t.Helper()
	var head batchHead
	var lines []byte
	for i := range records {
		start := len(lines)
		lines = head.appendLine(lines, &records[i])
		sameLine(t, string(lines[start:]), slogLine(t, records[i].Time, records[i]))
	}
}

// sameLine wants equal bytes, but for two control characters that have a second
// escaped form.
func sameLine(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	var one, two any
	if err := errors.Join(json.Unmarshal([]byte(got), &one), json.Unmarshal([]byte(want), &two)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(one, two) || !strings.Contains(want, `\u000`) || strings.Count(got, "\n") != 1 {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// sameRecord wants that the line of r in the file of decisions says what r as JSON
// does.
func sameRecord(t *testing.T, r account.Record) {
	t.Helper()
	line, want, got, plain := appendRecord(nil, &r), any(nil), any(nil), []byte(nil)
	plain, err := json.Marshal(r)
	if err = errors.Join(err, json.Unmarshal(plain, &want), json.Unmarshal(line, &got)); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if !reflect.DeepEqual(got, want) || bytes.IndexByte(line, '\n') != len(line)-1 {
		t.Errorf("got  %s\nwant %s", line, plain)
	}
}

// A zone in an address is text like any other.
func TestLineOfZone(t *testing.T) {
	r := account.Record{Time: time.Now(), Kind: account.KindDNS, Client: netip.MustParseAddrPort(`[fe80::1%a"b]:53`)}
	sameBatch(t, r, r)
	sameRecord(t, r)
}

func decision() account.Record {
	return account.Record{
		Time: time.Now(), Run: "01JZ", Cell: "cell-1", Policy: "strict", Digest: "sha256:" + strings.Repeat("0", 64),
		Kind: account.KindDNS, Host: "registry.npmjs.org", Verdict: firewall.Allow, Reason: firewall.ReasonListed,
		Rule: ".npmjs.org", Line: 7, Detail: "A", Client: netip.MustParseAddrPort("172.30.0.3:40000"),
	}
}

func BenchmarkLine(b *testing.B) {
	r := decision()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var head batchHead // none to take over
		buf = head.appendLine(buf[:0], &r)
	}
}

// The lines of a batch are those that their records have one by one.
func TestLinesOfBatch(t *testing.T) {
	records := make([]account.Record, 6)
	now := time.Now()
	for i := range records {
		records[i] = decision()
		records[i].Time, records[i].Host = now, []string{"a.npmjs.org", `b\000.example`}[i%2]
	}
	records[2].Cell = "cell-2"
	records[3].Time = records[3].Time.Add(time.Second)
	records[4].Digest = ""
	records[5].Verdict, records[5].Count = firewall.Deny, 3
	var head batchHead
	var got []byte
	want := ""
	for i := range records {
		got = head.appendLine(got, &records[i])
		want += slogLine(t, records[i].Time, records[i])
	}
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
