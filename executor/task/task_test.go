package task

import (
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/redact"
)

// TestText cuts a stream at every place: no character is torn, no secret shows.
func TestText(t *testing.T) {
	const secret = "sécrét-0123456789"
	in := "aé€😀 " + secret + " ü\n" + "😀"[:2]
	want := "aé€😀 [KEY redacted] ü\n" + "😀"[:2]
	for i := range len(in) {
		for j := i; j <= len(in); j++ {
			s := text{redacted: redact.New(map[string]string{"KEY": secret}).Stream()}
			var got strings.Builder
			for _, part := range []string{in[:i], in[i:j], in[j:]} {
				piece := string(s.next([]byte(part)))
				if strings.ToValidUTF8(piece, "") != piece {
					t.Fatalf("cut at %d and %d: %q is torn", i, j, piece)
				}
				got.WriteString(piece)
			}
			got.Write(s.flush())
			if got.String() != want {
				t.Fatalf("cut at %d and %d: %q", i, j, got.String())
			}
		}
	}
}

func TestWhole(t *testing.T) {
	for in, want := range map[string]int{
		"": 0, "a": 1, "é": 2, "é"[:1]: 0, "a" + "€"[:2]: 1, "😀"[:3]: 0, "\x80\x80\x80\x80\x80": 5, "a\xff": 2,
	} {
		if got := whole([]byte(in)); got != want {
			t.Errorf("whole(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestTail(t *testing.T) {
	var tl tail
	for range 100 {
		tl.add([]byte(strings.Repeat("a", 100)))
	}
	tl.add([]byte("end"))
	if got := tl.String(); len(got) != tailLength || !strings.HasSuffix(got, "aend") {
		t.Errorf("%d bytes, ending in %q", len(got), got[len(got)-10:])
	}
}

func TestStopReason(t *testing.T) {
	for _, tt := range []struct {
		code  api.Code // empty for success
		agent string
		want  string
	}{
		{"", "success", "success"},
		{"", "", "success"},
		{"", "unknown", "unknown"},
		{api.CodeTimeout, "success", "error_timeout"},
		{api.CodeCancelled, "", "error_aborted"},
		{api.CodeCommandFailed, "error_exit_3", "error_exit_3"},
		{api.CodeCommandFailed, "", "error_exit_7"},
		{api.CodeAgentFailed, "error_quota", "error_quota"},
		{api.CodeAgentFailed, "", "error_agent"},
		{api.CodeMemory, "success", "error_sandbox"},
		{api.CodeGateUnavailable, "", "error_sandbox"},
		{api.CodeOutputTooLarge, "success", "error_sandbox"},
	} {
		var err *api.Error
		if tt.code != "" {
			err = &api.Error{Code: tt.code, Details: map[string]any{"exitCode": 7}}
		}
		if got := stopReason(err, tt.agent); got != tt.want {
			t.Errorf("%s, %q: %s, want %s", tt.code, tt.agent, got, tt.want)
		}
	}
}
