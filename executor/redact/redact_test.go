package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"sallyport/executor/redact"
)

func TestString(t *testing.T) {
	r := redact.New(map[string]string{
		"A_KEY":     "sk-ant-12345678",
		"B_KEY":     "sk-ant-12345678-longer",
		"SHORT_KEY": "abc",
		"NO_KEY":    "",
	})
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"nothing here", "nothing here"},
		{"key sk-ant-12345678.", "key [A_KEY redacted]."},
		{"sk-ant-12345678-longer", "[B_KEY redacted]"},
		{"sk-ant-12345678-longe", "[A_KEY redacted]-longe"},
		{"a part: nt-12345678-l", "a part: [B_KEY redacted]"},
		{"too little: t-12345678-", "too little: t-12345678-"},
		{"sk-ant-12345678sk-ant-12345678", "[A_KEY redacted][A_KEY redacted]"},
		{"sk-ant-1234", "sk-ant-1234"},
		{"abc stays: it is too short", "abc stays: it is too short"},
	} {
		if got := r.String(tt.in); got != tt.want {
			t.Errorf("String(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// TestKeysAsTokens: a value given to New is found in every form in which a learnt one is.
func TestKeysAsTokens(t *testing.T) {
	const key = "sk-ant-api03-16C7e42F292c6912E7710c838347Ae178B4a_x-AA"
	r := redact.New(map[string]string{"A_KEY": key})
	basic := base64.StdEncoding.EncodeToString([]byte("key:" + key))
	for in, want := range map[string]string{
		key:                                   "[A_KEY redacted]",
		"in capitals " + strings.ToUpper(key): "in capitals sk[A_KEY redacted]",
		"hex " + hex.EncodeToString([]byte(key)) + ".": "hex [A_KEY redacted].",
		"percent " + percent(key):                      "percent [A_KEY redacted]",
		"middle " + key[20:40] + ".":                   "middle [A_KEY redacted].",
		"sk-ant-api03-... is how one begins":           "sk-ant-api03-... is how one begins",
	} {
		for _, r := range []*redact.Redactor{r, r.Fork()} {
			if got := r.String(in); !strings.EqualFold(got, want) {
				t.Errorf("String(%q) = %q, want %q", in, got, want)
			}
		}
	}
	if got := r.String(basic); !strings.Contains(got, "[A_KEY redacted]") || len(got) > len("[A_KEY redacted]")+16 {
		t.Errorf("%q becomes %q", basic, got)
	}
}

func TestZeroRedactor(t *testing.T) {
	var r redact.Redactor
	if got := r.String("text"); got != "text" {
		t.Errorf("String = %q", got)
	}
	s := r.Stream()
	if got := s.Next([]byte("text")); string(got) != "text" {
		t.Errorf("Next = %q", got)
	}
}

// TestStreamHoldsBackLittle checks that ordinary text passes at once.
func TestStreamHoldsBackLittle(t *testing.T) {
	s := redact.New(map[string]string{"A_KEY": "sk-ant-12345678"}).Stream()
	if got := s.Next([]byte("a line\n")); string(got) != "a line\n" {
		t.Errorf("Next = %q, want all of it", got)
	}
	if got := s.Next([]byte("it asks")); string(got) != "it a" {
		t.Errorf("Next = %q, want all but the possible beginning of a secret", got)
	}
	if got := s.Flush(); string(got) != "sks" {
		t.Errorf("Flush = %q", got)
	}
}

// FuzzStream checks that a text comes out the same however it is cut, and that
// no secret is left in it.
func FuzzStream(f *testing.F) {
	secrets := map[string]string{"A": "aaaaabbbbb", "B": "bbbbbaaaaa", "C": "aaaaabbbbbaaaaac", "D": "ababababab"}
	r := redact.New(secrets)
	f.Add([]byte("xx aaaaabbbbb yy"), byte(1))
	f.Add([]byte("aaaaabbbbbaaaaac"), byte(3))
	f.Add([]byte("aaaaabbbbbaaaaabbbbb"), byte(7))
	f.Add([]byte("abababababababababab"), byte(2))
	f.Fuzz(func(t *testing.T, text []byte, step byte) {
		n := int(step)%16 + 1
		s := r.Stream()
		var got bytes.Buffer
		for rest := text; len(rest) > 0; {
			k := min(n, len(rest))
			got.Write(s.Next(bytes.Clone(rest[:k])))
			rest = rest[k:]
		}
		got.Write(s.Flush())
		if want := r.String(string(text)); got.String() != want {
			t.Errorf("in pieces of %d: %q, want %q", n, got.String(), want)
		}
		for _, part := range splitMarks(got.String()) {
			for _, v := range secrets {
				if strings.Contains(part, v) {
					t.Errorf("%q still holds %q", got.String(), v)
				}
			}
		}
	})
}

func splitMarks(s string) []string {
	for _, name := range []string{"A", "B", "C", "D"} {
		s = strings.ReplaceAll(s, "["+name+" redacted]", "\x00")
	}
	return strings.Split(s, "\x00")
}

// BenchmarkLearn is what a run pays for a key that its executor's redactor knows, and for
// a secret that it does not.
func BenchmarkLearn(b *testing.B) {
	const key, other = "sk-ant-api03-16C7e42F292c6912E7710c838347Ae178B4a_x-AA", "ghp_1b2c3d4e5f60718293a4b5c6d7e8f9a0b1c2"
	base := redact.New(map[string]string{"A_KEY": key})
	for name, value := range map[string]string{"known": key, "new": other} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				base.Fork().Learn("A_KEY", value)
			}
		})
	}
}
