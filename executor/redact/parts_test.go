package redact_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"sallyport/executor/redact"
)

const token = "ghs_16C7e42F292c6912E7710c838347Ae178B4a"

func learnt(t testing.TB) *redact.Redactor {
	t.Helper()
	r := redact.New(map[string]string{"A_KEY": "sk-ant-12345678"}).Fork()
	r.Learn("GITHUB_TOKEN", token)
	return r
}

func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

func TestLearnt(t *testing.T) {
	const mark = "[GITHUB_TOKEN redacted]"
	r := learnt(t)
	basic := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + token))
	for _, tt := range []struct{ in, want string }{
		{"", ""},
		{"ghs_ is how one begins", "ghs_ is how one begins"},
		{token, mark},
		{"a" + token + "b" + token + "c", "a" + mark + "b" + mark + "c"},
		{token + token, mark},
		{"https://x:" + token + "@github.com/", "https://x:" + mark + "@github.com/"},
		{"start " + token[:12] + " end", "start " + mark + " end"},
		{"middle " + token[10:30] + ".", "middle " + mark + "."},
		{"too little: " + token[:11], "too little: " + token[:11]},
		{"in capitals " + strings.ToUpper(token), "in capitals " + mark},
		{"a name " + strings.ToLower(token[4:]) + ".evil.example", "a name " + mark + ".evil.example"},
		{"hex " + hex.EncodeToString([]byte(token)), "hex " + mark},
		{"percent " + percent(token) + "!", "percent " + mark + "!"},
		{"query " + url.QueryEscape(token), "query " + mark},
		{"both sk-ant-12345678 " + token, "both [A_KEY redacted] " + mark},
		{"zwölf " + token + " — ende", "zwölf " + mark + " — ende"},
	} {
		if got := r.String(tt.in); got != tt.want {
			t.Errorf("String(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	if got := r.String("Authorization: Basic " + basic); !strings.HasPrefix(got, "Authorization: Basic eC1hY2Nlc3MtdG9rZW46") || len(got) > len("Authorization: Basic ")+24+len(mark) {
		t.Errorf("the header of git becomes %q", got)
	}
}

// TestLearntBase64: wherever the token stands in what is encoded, and in either
// alphabet, no twelve bytes of it can be decoded from what is left.
func TestLearntBase64(t *testing.T) {
	r := learnt(t)
	for before := range 7 {
		for after := range 4 {
			text := strings.Repeat("~", before) + token + strings.Repeat("?", after)
			for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
				got := r.String(e.EncodeToString([]byte(text)))
				head, tail, ok := strings.Cut(got, "[GITHUB_TOKEN redacted]")
				if !ok || len(head) > before/3*4+4 || len(tail) > 8 {
					t.Errorf("%d before, %d after: %q", before, after, got)
				}
			}
		}
	}
}

func TestForkLearnsAlone(t *testing.T) {
	r := redact.New(nil)
	a, b := r.Fork(), r.Fork()
	a.Learn("A", token)
	if r.String(token) != token || b.String(token) != token {
		t.Error("others know what one has learnt")
	}
	a.Learn("B", "another-secret-value")
	if got := a.String(token + " another-secret-value"); got != "[A redacted] [B redacted]" {
		t.Errorf("%q", got)
	}
	if c := a.Fork(); c.String(token) != "[A redacted]" {
		t.Error("a fork has forgotten")
	}
}

// TestLearnsInMidStream: a token that arrives during a run is found in a stream
// that has begun.
func TestLearnsInMidStream(t *testing.T) {
	r := redact.New(nil)
	s := r.Stream()
	var got bytes.Buffer
	got.Write(s.Next([]byte("before " + token[:20])))
	r.Learn("T", token)
	got.Write(s.Next([]byte(" after " + token[:20])))
	got.Write(s.Next([]byte(token[20:] + "\n")))
	if got.String() != "before "+token[:20]+" after [T redacted]\n" {
		t.Errorf("%q", got.String())
	}
	if rest := s.Flush(); len(rest) > 0 {
		t.Errorf("held back %q", rest)
	}

	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { r.Learn(fmt.Sprint(i), fmt.Sprintf("secret-number-%04d", i)) })
		wg.Go(func() { r.String("secret-number-0001") })
	}
	wg.Wait()
	if got := r.String("secret-number-0003 "); strings.Contains(got, "0003") {
		t.Errorf("forgot one of those learnt at once: %q", got)
	}
}

// TestLearnIsIncremental: a further token costs what the first ones did, and all of
// them fit beside several runs. The tokens are as long as GitHub's may become.
func TestLearnIsIncremental(t *testing.T) {
	const tokens, some, length = 40, 10, 500
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := redact.New(nil).Fork()
	var values []string
	learn := func() (allocated uint64) {
		var from, to runtime.MemStats
		runtime.ReadMemStats(&from)
		for range some {
			value := "ghs_"
			for len(value) < length {
				value += rand.Text()
			}
			values = append(values, value)
			r.Learn("T", value)
		}
		runtime.ReadMemStats(&to)
		return to.TotalAlloc - from.TotalAlloc
	}
	first := learn()
	last := first
	for len(values) < tokens {
		last = learn()
	}
	if last > 4*first {
		t.Errorf("the last %d tokens took %d KiB, the first %d", some, last>>10, first>>10)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if held := int64(after.HeapAlloc) - int64(before.HeapAlloc); held > tokens<<20 {
		t.Errorf("%d tokens hold %d KiB", tokens, held>>10)
	}
	for i, value := range values {
		if got := r.String("a " + value[40:90] + " b"); got != "a [T redacted] b" {
			t.Fatalf("token %d: %q", i, got)
		}
	}
}

// FuzzLearnt checks that a text comes out the same however it is cut, that
// twelve bytes of the token are never left, and that what stands around the marks
// is the text's own, in its order.
func FuzzLearnt(f *testing.F) {
	r := learnt(f)
	f.Add([]byte("xx "+token+" yy"), byte(1))
	f.Add([]byte(token[:20]+token[3:]+token[:11]), byte(3))
	f.Add([]byte("sk-ant-"+token[:13]+"12345678sk-ant-12345678"), byte(5))
	f.Add([]byte(base64.StdEncoding.EncodeToString([]byte("x-access-token:"+token))), byte(7))
	f.Add([]byte(percent(token[5:20])), byte(2))
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
			t.Fatalf("in pieces of %d: %q, want %q", n, got.String(), want)
		}
		for _, part := range strings.Split(got.String(), "[GITHUB_TOKEN redacted]") {
			for i := 0; i+12 <= len(token); i++ {
				if strings.Contains(part, token[i:i+12]) {
					t.Fatalf("%q still holds %q", got.String(), token[i:i+12])
				}
			}
		}
		if !isRest(got.String(), string(text)) {
			t.Fatalf("%q became %q", text, got.String())
		}
	})
}

var mark = regexp.MustCompile(`\[(GITHUB_TOKEN|A_KEY) redacted\]`)

// isRest says whether got is text with nothing changed but that pieces of it have
// become marks.
func isRest(got, text string) bool {
	parts := mark.Split(got, -1)
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return got == text
	}
	if !strings.HasPrefix(text, first) || !strings.HasSuffix(text[len(first):], last) {
		return false
	}
	between := text[len(first) : len(text)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(between, part)
		if at < 0 {
			return false
		}
		between = between[at+len(part):]
	}
	return true
}

// BenchmarkStream is what an agent's output costs on its way through.
func BenchmarkStream(b *testing.B) {
	line := []byte(`{"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"ghostly words and some more"}]}}` + "\n")
	for name, r := range map[string]*redact.Redactor{"exact": redact.New(map[string]string{"A_KEY": "sk-ant-12345678"}), "learnt": learnt(b)} {
		b.Run(name, func(b *testing.B) {
			s := r.Stream()
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				s.Next(line)
			}
		})
	}
}
