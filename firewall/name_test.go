package firewall

import (
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// TestParseName reads names good and bad.
//
// probe: D11, D12, D14, S12, S13
// oracle: the error for each, beside names that are taken
func TestParseName(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	name253 := strings.Repeat(label63+".", 3) + strings.Repeat("b", 61)
	tests := []struct {
		in, want string
		err      error
	}{
		{in: "github.com", want: "github.com"},
		{in: "github.com.", want: "github.com"},
		{in: "GitHub.COM", want: "github.com"},
		{in: "aPi.GiThUb.cOm.", want: "api.github.com"}, // 0x20 case
		{in: "a.b", want: "a.b"},
		{in: "3com.com", want: "3com.com"},
		{in: "1.2.3.4.nip.io", want: "1.2.3.4.nip.io"}, // a name; its address is judged later
		{in: "r3---sn-4g5e6nz7.googlevideo.com", want: "r3---sn-4g5e6nz7.googlevideo.com"},
		{in: "0xg.0xg", want: "0xg.0xg"}, // not a number
		{in: "1.0a", want: "1.0a"},
		{in: "a.1x5", want: "a.1x5"},
		{in: label63 + ".com", want: label63 + ".com"},
		{in: name253, want: name253},
		{in: name253 + ".", want: name253},
		{in: "xn--mnchen-3ya.de", want: "xn--mnchen-3ya.de"},
		{in: "XN--MNCHEN-3YA.de", want: "xn--mnchen-3ya.de"},
		{in: "www.xn--fiqs8s", want: "www.xn--fiqs8s"},
		{in: "xn--4dbcagdahymbxekheh6e0a7fei0b.com", want: "xn--4dbcagdahymbxekheh6e0a7fei0b.com"}, // right to left

		{in: "", err: errNameEmpty},
		{in: ".", err: errNameEmpty},
		{in: "..", err: errLabelEmpty},
		{in: "github.com..", err: errLabelEmpty},
		{in: ".github.com", err: errLabelEmpty},
		{in: "github..com", err: errLabelEmpty},
		{in: "a" + label63 + ".com", err: errLabelLong},
		{in: name253 + "b", err: errNameLong},
		{in: strings.Repeat("a.", 1<<20), err: errNameLong},
		{in: "-a.com", err: errHyphen},
		{in: "a-.com", err: errHyphen},
		{in: "a.-", err: errHyphen},
		{in: "localhost", err: ErrSingleLabel},
		{in: "metadata.", err: ErrSingleLabel},
		{in: "a_b.com", err: errByte},
		{in: "_dmarc.github.com", err: errByte},
		{in: "*.github.com", err: errByte},
		{in: "git hub.com", err: errByte},
		{in: "github.com\x00.evil.com", err: errByte},
		{in: "github.com\n", err: errByte},
		{in: "github.com\r\nHost: x", err: errByte},
		{in: "\x1b[31mgithub.com", err: errByte},
		{in: "user@github.com", err: errByte},
		{in: "github.com:443", err: errByte},
		{in: "github.com/x", err: errByte},
		{in: `github\.com`, err: errByte},
		{in: "github%2ecom", err: errByte},

		{in: "münchen.de", err: ErrNotASCII},
		{in: "\uff47\uff49thub.com", err: ErrNotASCII}, // full-width letters
		{in: "github\u3002com", err: ErrNotASCII},      // ideographic full stop
		{in: "g\u0131thub.com", err: ErrNotASCII},      // folds to ASCII in some tables
		{in: "github.com\xff", err: ErrNotASCII},
		{in: "github.com\x80", err: ErrNotASCII},
		{in: "xn--.com", err: errHyphen},
		{in: "xn--a.com", err: errALabel},
		{in: "xn--mnchen-3ya-.de", err: errHyphen},
		{in: "xn--99999999.com", err: errALabel},
		{in: "xn--strae-oqa.xn--0a", err: errALabel},
		{in: "xn--github-.com", err: errHyphen},
		{in: "xn--Mnchen-3ya.xn--a", err: errALabel}, // a good one beside a bad one
		{in: "xn--strae-oqa.xn--0", err: errALabel},
		{in: "xn--abc-.com", err: errHyphen},
		{in: "xn--a-0.com", err: errALabel},
		{in: "xn--www-hoa.xn--", err: errHyphen},
		{in: "xn--xn--mnchen-3ya-.de", err: errHyphen}, // doubly encoded

		{in: "127.0.0.1", err: errIPLiteral},
		{in: "127.0.0.1.", err: errIPLiteral},
		{in: "127.1", err: errIPLiteral},
		{in: "2130706433", err: errIPLiteral},
		{in: "0x7f000001", err: errIPLiteral},
		{in: "0X7F.1", err: errIPLiteral},
		{in: "0x7f.0.0.0x1", err: errIPLiteral},
		{in: "0177.0.0.01", err: errIPLiteral},
		{in: "169.254.43518", err: errIPLiteral},
		{in: "1.2.3.4.5", err: errIPLiteral}, // no address, and no name
		{in: "foo.0", err: errIPLiteral},
		{in: "foo.0x", err: errIPLiteral}, // the URL standard reads 0x as 0
		{in: "github.com.09", err: errIPLiteral},
		{in: "999.999.999.999", err: errIPLiteral},
		{in: "::1", err: errIPLiteral},
		{in: "[::1]", err: errIPLiteral},
		{in: "fe80::1%eth0", err: errIPLiteral},
		{in: "::ffff:1.2.3.4", err: errIPLiteral},
	}
	for _, tt := range tests {
		got, err := ParseName(tt.in)
		if !errors.Is(err, tt.err) || got.String() != tt.want {
			t.Errorf("ParseName(%.80q) = %q, %v; want %q, %v", tt.in, got, err, tt.want, tt.err)
		}
		if (err == nil) == got.IsZero() {
			t.Errorf("ParseName(%.80q): IsZero is %v beside error %v", tt.in, got.IsZero(), err)
		}
	}
}

func TestParseNameCost(t *testing.T) {
	for in, most := range map[string]float64{
		"objects.githubusercontent.com":  0,
		"objects.githubusercontent.com.": 0,
		"Objects.GitHubUserContent.com":  1,
		"127.0.0.1":                      0,
		"evil_name.com":                  0,
	} {
		if n := testing.AllocsPerRun(100, func() { _, _ = ParseName(in) }); n > most {
			t.Errorf("ParseName(%q) allocates %v times, want at most %v", in, n, most)
		}
	}
}

// FuzzParseName requires that a name is canonical, and that no program takes it
// for an address.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{"github.com", "GitHub.com.", "xn--mnchen-3ya.de", "127.1", "0x7f.1", "a.0x", "::1", "a..b", "r3---sn.x.com", "1.2.3.4.nip.io"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseName(s)
		if err != nil {
			if !n.IsZero() {
				t.Fatalf("ParseName(%q) = %q with error %v", s, n, err)
			}
			return
		}
		c := n.String()
		if again, err := ParseName(c); err != nil || again != n {
			t.Fatalf("ParseName(%q) = %q, which parses to %q, %v", s, c, again, err)
		}
		if len(c) > 253 || strings.ToLower(c) != c || !strings.Contains(c, ".") || strings.Trim(c, ".") != c {
			t.Fatalf("ParseName(%q) = %q is not canonical", s, c)
		}
		if !strings.EqualFold(strings.TrimSuffix(s, "."), c) {
			t.Fatalf("ParseName(%q) = %q is another name", s, c)
		}
		if _, err := netip.ParseAddr(c); err == nil || inetAton(c) {
			t.Fatalf("ParseName(%q) = %q is an address", s, c)
		}
	})
}

// inetAton reports whether the C library's inet_aton reads s as an address: one
// to four numbers in decimal, octal or hexadecimal, the last of which fills the
// bytes that are left.
func inetAton(s string) bool {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return false
	}
	for i, p := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		if p == "0x" || p == "0X" { // some versions read this as 0
			p = "0"
		}
		if strings.ContainsAny(p, "_bBoO") && !strings.HasPrefix(strings.ToLower(p), "0x") || strings.Contains(p, "_") {
			return false // Go's own prefixes
		}
		if _, err := strconv.ParseUint(p, 0, bits); err != nil {
			return false
		}
	}
	return true
}

func TestInetAton(t *testing.T) {
	for s, want := range map[string]bool{
		"127.0.0.1": true, "127.1": true, "0x7f.1": true, "2130706433": true, "017700000001": true,
		"256.0.0.1": false, "1.2.3.4.5": false, "a.b": false, "0b1.1": false, "1_0.1": false,
	} {
		if inetAton(s) != want {
			t.Errorf("inetAton(%q) = %v, want %v", s, !want, want)
		}
	}
}

func BenchmarkParseName(b *testing.B) {
	for _, bm := range []struct{ name, in string }{
		{"canonical", "objects.githubusercontent.com"},
		{"upper", "Objects.GitHubUserContent.com"},
		{"alabel", "www.xn--mnchen-3ya.de"},
		{"refused", "169.254.169.254"},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = ParseName(bm.in)
			}
		})
	}
}
