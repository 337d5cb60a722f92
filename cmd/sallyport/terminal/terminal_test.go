package terminal

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestSafe escapes what could fool a terminal.
//
// probe: F8
// oracle: the text, byte for byte
func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain\ttext\n":                 "plain\ttext\n",
		"caf\u00e9 \u6771\u4eac \u05d0": "caf\u00e9 \u6771\u4eac \u05d0",
		"dos\r\nlines\r\n":              "dos\nlines\n",
		"over\rwritten":                 `over\x0dwritten`,
		"\x1b[2J\x1b]0;title\a":         `\x1b[2J\x1b]0;title\x07`,
		"\u009b31m":                     `\u009b31m`,
		"\u202egpj.exe\u202c":           `\u202egpj.exe\u202c`,
		"zero\u200bwidth\ufeff":         `zero\u200bwidth\ufeff`,
		"\xff\xc3":                      `\xff\xc3`,
		"\ufffd":                        "\ufffd",
		"line\u2028end":                 `line\u2028end`,
		"\U000e0041":                    `\U000e0041`,
		"nul\x00del\x7f":                `nul\x00del\x7f`,
	} {
		if got := Safe(in); got != want {
			t.Errorf("safe(%q) = %q, want %q", in, got, want)
		}
	}
}

// probe: F8
// oracle: no rune of any text is one that a terminal acts on
func FuzzSafe(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff\r\n\U000e0041")
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range Safe(s) {
			if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
				t.Fatalf("safe(%q) = %q holds %U", s, Safe(s), r)
			}
		}
		if one := OneLine(s, 40); strings.ContainsAny(one, "\n\t\r") {
			t.Fatalf("oneLine(%q) = %q", s, one)
		}
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(data, &before) != nil || json.Unmarshal(SafeJSON(data), &after) != nil || before != after {
			t.Fatalf("safeJSON(%s) = %s means %q, want %q", data, SafeJSON(data), after, before)
		}
		for _, r := range string(SafeJSON(data)) {
			if !unicode.IsPrint(r) {
				t.Fatalf("safeJSON(%s) holds %U", data, r)
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 24_100: "24.1 kB", 999_949: "999.9 kB", 999_999: "1.0 MB", 5e9: "5.0 GB", 1<<63 - 1: "9.2 EB"} {
		if got := Bytes(n); got != want {
			t.Errorf("bytesText(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 834: "834", 12_140: "12.1k", 999_960: "1.0M", 3_400_000: "3.4M"} {
		if got := Count(n); got != want {
			t.Errorf("countText(%d) = %q, want %q", n, got, want)
		}
	}
	for ms, want := range map[int64]string{0: "0.0 s", 1234: "1.2 s", 61_000: "1m1s", 3_600_000: "1h0m0s"} {
		if got := Duration(ms); got != want {
			t.Errorf("duration(%d) = %q, want %q", ms, got, want)
		}
	}
}
