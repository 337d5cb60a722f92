package firewall

import (
	"strings"
	"testing"
)

// TestEscape escapes what could fool a terminal or a log.
//
// probe: F8, F9
// oracle: the text, byte for byte
func TestEscape(t *testing.T) {
	tests := []struct {
		in   string
		max  int
		want string
	}{
		{"github.com", 64, "github.com"},
		{"", 64, ""},
		{"a b\"c", 64, `a b"c`},
		{`a\n`, 64, `a\\n`},
		{`\`, 64, `\\`},
		{"a\nb\r\tc", 64, `a\nb\r\tc`},
		{"\x1b]0;evil\a\x7f\x00", 64, `\x1b]0;evil\x07\x7f\x00`},
		{"\u202egpj.exe", 64, `\u202egpj.exe`},
		{"m\u00fcnchen \U0001f600", 64, `m\u00fcnchen \U0001f600`},
		{"\xff\xfe\xc3", 64, `\xff\xfe\xc3`},
		{"\ufffd", 64, `\ufffd`},
		{"\u0085\u2028", 64, `\u0085\u2028`},
		{"0123456789", 10, "0123456789"},
		{"0123456789a", 10, "0123456..."},
		{"012345\n", 7, "0123..."},
		{"\n\n\n\n\n", 8, `\n\n...`},
		{"\n\n\n\n\n", 7, `\n\n...`},
		{"\n\n\n\n\n", 6, `\n...`},
		{"abcdef", 3, "..."},
		{"abcdef", 2, ".."},
		{"abcdef", 0, ""},
		{"ab", 2, "ab"},
	}
	for _, tt := range tests {
		if got := Escape(tt.in, tt.max); got != tt.want {
			t.Errorf("Escape(%q, %d) = %q, want %q", tt.in, tt.max, got, tt.want)
		}
	}
}

// probe: F8, F9
// oracle: no byte of any text is outside of printable ASCII
func FuzzEscape(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff", 9)
	f.Add("newline\n{\"verdict\":\"allow\"}", 200)
	f.Fuzz(func(t *testing.T, s string, max int) {
		max &= 0xff
		got := Escape(s, max)
		if len(got) > max {
			t.Fatalf("Escape(%q, %d) is %d bytes long", s, max, len(got))
		}
		for i := range len(got) {
			if got[i] < ' ' || got[i] > '~' {
				t.Fatalf("Escape(%q, %d) = %q holds %#x", s, max, got, got[i])
			}
		}
		if whole := Escape(s, 12*len(s)); strings.HasSuffix(whole, "...") && !strings.HasSuffix(s, "...") {
			t.Fatalf("Escape(%q) with room is cut: %q", s, whole)
		}
	})
}
