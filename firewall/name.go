package firewall

import (
	"errors"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// The limits of RFC 1035, 2.3.4, in bytes. A name of 253 bytes without its
// final dot takes the 255 that the wire allows.
const (
	maxName  = 253
	maxLabel = 63
)

// A Name is a host name in its canonical form: at least two labels of letters,
// digits and inner hyphens (RFC 952, RFC 1123), lower-case, without a trailing
// dot, international labels in their one valid ASCII form. It is never an IP
// address in any spelling. Only ParseName makes one; the zero Name is no name
// and no policy allows it.
type Name struct{ s string }

// The faults that ParseName finds. They hold nothing of the input, so that they
// can be shown and logged as they are.
var (
	errNameEmpty   = errors.New("the name is empty")
	errNameLong    = errors.New("the name is longer than 253 bytes")
	errLabelEmpty  = errors.New("the name has an empty label")
	errLabelLong   = errors.New("the name has a label longer than 63 bytes")
	errHyphen      = errors.New("a label begins or ends with a hyphen")
	errByte        = errors.New("the name holds a byte that is not a letter, digit, hyphen or dot")
	ErrNotASCII    = errors.New("the name is not ASCII: an international name is written in its xn-- form")
	errALabel      = errors.New("an xn-- label is not the canonical form of an international name")
	errIPLiteral   = errors.New("the name is an IP address, not a host name")
	ErrSingleLabel = errors.New("the name has a single label")
)

// ParseName makes the canonical form of s. It folds the case and drops one
// trailing dot; anything else that is not canonical is an error. A name that is
// canonical already is not copied.
func ParseName(s string) (Name, error) {
	given := s
	if n := len(s); n > 0 && s[n-1] == '.' {
		s = s[:n-1]
	}
	switch {
	case s == "":
		return Name{}, errNameEmpty
	case len(s) > maxName:
		return Name{}, errNameLong
	}
	upper := false
	labels, start := 0, 0
	for i := 0; i <= len(s); i++ {
		if i == len(s) || s[i] == '.' {
			if err := checkLabel(s[start:i]); err != nil {
				return Name{}, err
			}
			labels++
			start = i + 1
			continue
		}
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-':
		case 'A' <= c && c <= 'Z':
			upper = true
		default:
			return Name{}, byteFault(given, c)
		}
	}
	last := s[strings.LastIndexByte(s, '.')+1:]
	switch {
	case IsNumber(last):
		return Name{}, errIPLiteral
	case labels < 2:
		return Name{}, ErrSingleLabel
	}
	if upper {
		s = strings.ToLower(s)
	}
	return Name{s}, nil
}

// checkLabel judges the shape of one label whose bytes are judged elsewhere.
func checkLabel(l string) error {
	switch {
	case l == "":
		return errLabelEmpty
	case len(l) > maxLabel:
		return errLabelLong
	case l[0] == '-' || l[len(l)-1] == '-':
		return errHyphen
	case len(l) >= 4 && l[2] == '-' && l[3] == '-' && l[0]|0x20 == 'x' && l[1]|0x20 == 'n':
		return checkALabel(strings.ToLower(l))
	}
	return nil
}

// checkALabel requires that l is exactly what encoding its international form
// gives (RFC 5891, 5.4): two spellings of one name would be two names to us.
// A label that decodes to ASCII is refused with it, since encoding that gives
// the ASCII back.
func checkALabel(l string) error {
	u, err := idna.Registration.ToUnicode(l)
	if err != nil {
		return errALabel
	}
	if a, err := idna.Registration.ToASCII(u); err != nil || a != l {
		return errALabel
	}
	return nil
}

// byteFault says what is wrong with a name that holds the byte c.
func byteFault(s string, c byte) error {
	if c >= 0x80 {
		return ErrNotASCII
	}
	if c == ':' || c == '[' {
		if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
			return errIPLiteral
		}
	}
	return errByte
}

// IsNumber reports whether a last label makes the whole name an IPv4 address to
// some program: the URL standard's "ends in a number" (WHATWG, host parsing),
// which takes in every form that inet_aton reads, be it decimal, octal,
// hexadecimal or of fewer than four parts.
func IsNumber(l string) bool {
	digits := "0123456789"
	if len(l) >= 2 && l[0] == '0' && l[1]|0x20 == 'x' {
		l, digits = l[2:], "0123456789abcdefABCDEF"
	}
	return strings.Trim(l, digits) == ""
}

// String is the canonical form, "" for the zero Name.
func (n Name) String() string { return n.s }

// IsZero reports whether n is no name.
func (n Name) IsZero() bool { return n.s == "" }
