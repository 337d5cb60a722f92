package firewall

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Escape makes s safe for a log line, a terminal or a receipt: printable ASCII
// stays, a backslash is doubled, anything else (control characters, bytes that
// are not UTF-8, all letters beyond ASCII, since those can mislead the eye or
// reverse a line) becomes \n, \x1b or \u202e. The result is at most max bytes
// long; what was cut ends in "...". An escape is never cut in two.
func Escape(s string, max int) string {
	const mark = "..."
	if plain(s) && len(s) <= max {
		return s
	}
	var b strings.Builder
	room := 0 // the length of b at which the mark still fits
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		var buf [12]byte
		e := appendEscaped(buf[:0], r, s[i:i+n])
		if b.Len()+len(e) > max {
			return b.String()[:room] + mark[:min(len(mark), max-room)]
		}
		b.Write(e)
		if b.Len()+len(mark) <= max {
			room = b.Len()
		}
		i += n
	}
	return b.String()
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' || s[i] == '\\' {
			return false
		}
	}
	return true
}

// appendEscaped appends the escaped form of r, which was read from raw.
func appendEscaped(b []byte, r rune, raw string) []byte {
	switch {
	case r == '\\':
		return append(b, `\\`...)
	case ' ' <= r && r <= '~':
		return append(b, byte(r))
	case r == '\n':
		return append(b, `\n`...)
	case r == '\r':
		return append(b, `\r`...)
	case r == '\t':
		return append(b, `\t`...)
	case r < 0x80 || r == utf8.RuneError && len(raw) == 1:
		return append(b, '\\', 'x', hexDigits[raw[0]>>4], hexDigits[raw[0]&0xf])
	}
	q := strconv.AppendQuoteRuneToASCII(nil, r) // '\u202e' or '\U0001f600'
	return append(b, q[1:len(q)-1]...)
}
