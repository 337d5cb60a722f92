package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"sallyport/entrypoint/wire"
	"sallyport/executor/api"
)

// line is head, unit as often as a line may be long, and tail.
func line(head, unit, tail string) []byte {
	return []byte(head + strings.Repeat(unit, (maxLine-len(head)-len(tail))/len(unit)) + tail + "\n")
}

// allocated is what f allocates, in bytes. It is the most that f may have held at
// any time.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestMemoryOfALine has agents print the lines, just short of the bound, that JSON can
// make most of.
//
// probe: X15
// oracle: the Go runtime's count of all bytes that were allocated for the line
func TestMemoryOfALine(t *testing.T) {
	const most = 20 * maxLine
	hostile := map[string][]byte{
		"empty blocks":        line(`{"type":"message_end","message":{"role":"assistant","content":[`, "{},", `{}]}}`),
		"blocks of no form":   line(`{"type":"message_end","message":{"role":"assistant","content":[`, "0,", `0]}}`),
		"many contents":       line(`{"type":"message_end","message":{"role":"assistant",`, `"content":[`+strings.Repeat("{},", 300)+`{}],`, `"x":0}}`),
		"texts":               line(`{"type":"message_end","message":{"role":"assistant","content":[`, `{"type":"text","text":"x"},`, `{}]}}`),
		"uses of tools":       line(`{"type":"message_end","message":{"role":"assistant","content":[`, `{"type":"toolCall","arguments":{}},`, `{}]}}`),
		"a tool's blocks":     line(`{"type":"tool_execution_end","toolCallId":"x","result":{"content":[`, "{},", `{}]}}`),
		"a summary's blocks":  line(`{"type":"compaction_end","result":{"content":[`, "{},", `{}]}}`),
		"arguments in arrays": line(`{"type":"tool_execution_start","toolCallId":"x","args":{"a":[`, "{},", `{}]}}`),
		"nested arguments":    line(`{"type":"tool_execution_start","toolCallId":"x","args":{"a":[`, `[{"":[]}],`, `0]}}`),
		"many arguments":      line(`{"type":"tool_execution_start","toolCallId":"x","args":{`, `"":[],`, `"a":0}}`),
		"a message's arguments": line(`{"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"x","arguments":{"a":[`,
			"{},", `{}]}}]}}`),
		"one argument":     line(`{"type":"tool_execution_start","toolCallId":"x","args":{"a":"`, `\u0001`, `"}}`),
		"one text":         line(`{"type":"message_end","message":{"role":"assistant","content":"`, `x`, `"}}`),
		"bytes of no rune": line(`{"type":"message_end","message":{"role":"assistant","content":"`, "x\xff", `"}}`),
		"an error":         line(`{"type":"fatal_error","error":[`, "{},", `{}]}`),
		"unknown members":  line(`{"type":"session","x":[`, "{},", `{}]}`),
		"no type":          line(`{"x":[`, "{},", `{}]}`),
	}
	for _, a := range All() {
		for name, text := range hostile {
			if a.Name != "pi" && !strings.Contains(name, " blocks") && !strings.Contains(name, "'s ") {
				continue // pi and agentic-pi have their parser in common
			}
			t.Run(a.Name+"/"+name, func(t *testing.T) {
				p := a.NewParser(Input{})
				got := allocated(func() {
					for len(text) > 0 {
						n := min(len(text), 64<<10)
						p.Stdout(text[:n])
						text = text[n:]
					}
				})
				if got > most {
					t.Errorf("%d MiB were allocated, want at most %d", got>>20, most>>20)
				}
			})
		}
	}
}

// TestNothingIsKeptOfLongNames runs lines whose names are as long as lines may be:
// what stays of each is as short as a name may be.
func TestNothingIsKeptOfLongNames(t *testing.T) {
	s := newStream("pi", Input{})
	kept := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := kept()
	for i := range 12 {
		s.Stdout(line(fmt.Sprintf(`{"type":"tool_execution_start","toolCallId":"%d`, i), "x", `"}`))
	}
	if len(s.started) != 12 {
		t.Fatalf("%d uses of tools were noted", len(s.started))
	}
	if n := kept() - before; int64(n) > maxLine/2 {
		t.Errorf("%d KiB are kept of the uses of tools", n>>10)
	}
	s.Stdout(line(`{"type":"message_end","message":{"role":"assistant","stopReason":"`, "x", `"}}`))
	if n := kept() - before; int64(n) > maxLine/2 {
		t.Errorf("%d KiB are kept of a message", n>>10)
	}
	runtime.KeepAlive(s)
}

// TestManyBlocks has a message and a tool's result of more parts than are read.
func TestManyBlocks(t *testing.T) {
	parts := strings.Repeat(`{"type":"text","text":"x"},`, maxBlocks)
	for _, tc := range []struct {
		content string
		more    bool
	}{
		{parts[:len(parts)-1], false},
		{parts + `{"type":"text","text":"y"}`, true},
	} {
		s := clocked("pi")
		events := s.Stdout([]byte(`{"type":"message_end","message":{"role":"assistant","stopReason":"stop","content":[` + tc.content + "]}}\n"))
		count := map[api.EventType]int{}
		for _, e := range events {
			count[e.Type]++
		}
		if count[api.EventText] != maxBlocks || count[api.EventUsage] != 1 || count[api.EventWarning] == 1 != tc.more {
			t.Errorf("events %v, more %v", count, tc.more)
		}
		if o := s.Finish(wire.Exit{}); o.OutputTruncated != tc.more || !strings.HasPrefix(o.Output, "x\nx") || strings.Contains(o.Output, "y") {
			t.Errorf("output of %d bytes, truncated %v", len(o.Output), o.OutputTruncated)
		}
		events = s.Stdout([]byte(`{"type":"tool_execution_end","toolCallId":"t","result":{"content":[` + tc.content + "]}}\n"))
		if len(events) != 1 || events[0].Tool.Truncated != tc.more || len(events[0].Tool.Result) != 2*maxBlocks-1 {
			t.Errorf("the tool's end: %+v", events)
		}
	}
}

// FuzzBoundArgs bounds the arguments head, unit n times, tail.
func FuzzBoundArgs(f *testing.F) {
	f.Add(`{"a":[`, `{},`, `{}]}`, 30000)
	f.Add(`{"path":"a","content":"`, `\ud83d\udeaa<é`, `","b":[1,2]}`, 9000)
	f.Add(`{`, `"a":"b",`, `"c":0}`, 9000)
	f.Add(`[`, `[],`, `0]`, 30000)
	f.Add(`"`, `é`, `"`, 70000)
	f.Fuzz(func(t *testing.T, head, unit, tail string, n int) {
		n = min(max(n, 0), 1<<18/(len(unit)+1))
		raw := []byte(head + strings.Repeat(unit, n) + tail)
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return
		}
		var got json.RawMessage
		if n := allocated(func() { got = boundArgs(raw) }); n > uint64(16*len(raw)+8<<20) {
			t.Errorf("%d bytes of arguments took %d", len(raw), n)
		}
		if len(got) > maxArgs || !json.Valid(got) || !utf8.Valid(got) {
			t.Fatalf("%d bytes became %d: %.100q", len(raw), len(got), got)
		}
		if len(raw) <= maxArgs && !bytes.Equal(got, raw) {
			t.Fatalf("short arguments became %q", got)
		}
	})
}
