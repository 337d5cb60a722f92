// Package terminal makes text fit for a terminal: what came out of a sandbox, so that
// nothing in it can move the cursor, hide or speak to the terminal, and numbers, so that
// a person reads them.
package terminal

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Safe makes text that came out of a sandbox fit for a terminal: lines and
// tabs stay, whatever could move the cursor, change colours, reverse a line or
// speak to the terminal is shown as an escape.
func Safe(s string) string {
	if !strings.ContainsFunc(s, unsafe) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
			// the line end of other systems
		case !unsafe(r) || r == utf8.RuneError && n > 1:
			b.WriteString(s[i : i+n])
		case r == utf8.RuneError || r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

// unsafe reports what is not simply shown, and utf8.RuneError, which may stand for
// a byte that is no UTF-8.
func unsafe(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r) || r == utf8.RuneError
}

// SafeJSON is the same for JSON, where such characters occur in strings only and
// an escape means the character itself.
func SafeJSON(data []byte) []byte {
	var b []byte
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		switch {
		case !unsafe(r) || r == utf8.RuneError && n > 1:
			b = append(b, data[i:i+n]...)
		case r > 0xffff:
			high, low := utf16Pair(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		i += n
	}
	return b
}

// utf16Pair splits r as the escapes of JSON require.
func utf16Pair(r rune) (high, low rune) {
	r -= 0x10000
	return 0xd800 + r>>10, 0xdc00 + r&0x3ff
}

// OneLine is safe, without line ends and at most max characters long.
func OneLine(s string, max int) string {
	return Safe(Cut(strings.Join(strings.Fields(s), " "), max))
}

// Cut gives at most max characters of s, the last of them dots where it was longer.
func Cut(s string, max int) string {
	if utf8.RuneCountInString(s) > max {
		return string([]rune(s)[:max-3]) + "..."
	}
	return s
}

// Bytes is a number of bytes for a person: "512 B", "24.1 kB".
func Bytes(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v, units := float64(n), "kMGTPE"
	for i := 0; ; i++ {
		if v /= 1000; v < 999.95 || i == len(units)-1 {
			return fmt.Sprintf("%.1f %cB", v, units[i])
		}
	}
}

// Count is a number for a person: "834", "12.1k".
func Count(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 999_950:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1e6)
}

// Duration is a number of milliseconds for a person: "12.3 s", "4m5s".
func Duration(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	if d < time.Minute {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Cell makes s fit for a table.
func Cell(s string) string { return OneLine(strings.ReplaceAll(s, "\t", " "), 120) }

// List is values for a person: "80 and 443".
func List[T any](vs []T) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(vs), "[]"), " ", " and ")
}
