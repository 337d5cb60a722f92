package executor_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// oddKey has characters that JSON spells otherwise, or may.
const oddKey = `sk-<odd>&"quoted"\'\\secret/é`

// TestSecrets has an agent print its key in every way, and put it into names; it must
// be found nowhere, nor another one that the caller has put into the request.
func TestSecrets(t *testing.T) {
	t.Parallel()
	h := start(t, secret("OPENAI_API_KEY", oddKey))
	half := len(secretKey) / 2
	script := fmt.Sprintf(`echo "$ANTHROPIC_API_KEY"; echo "$ANTHROPIC_API_KEY" >&2; printf %s; sleep 0.3; printf '%%s\n' %s
printf %%s "$ANTHROPIC_API_KEY" | base64; printf %%s "$ANTHROPIC_API_KEY" | od -An -v -tx1 | tr -d ' \n'
cat; mkdir "$ANTHROPIC_API_KEY"; for d in . "$ANTHROPIC_API_KEY"; do echo kept > "$d/$ANTHROPIC_API_KEY.txt"; mkfifo "$d/$ANTHROPIC_API_KEY.fifo"; done
ln -s /etc/passwd "$ANTHROPIC_API_KEY.link"; exit 3`, secretKey[:half], secretKey[half:])
	body := command(script, `"artifacts":["**"]`, `"agentContext":`+quoted(secretKey+oddKey))
	body = strings.Replace(body, `"the prompt"`, quoted("use "+oddKey), 1)
	resp, data := h.do(http.MethodPost, "/v1/executions", body, "Accept", "application/x-ndjson")
	if resp.StatusCode != 200 || !bytes.Contains(data, []byte("[ANTHROPIC_API_KEY redacted]")) {
		t.Fatalf("%s: %s", resp.Status, data)
	}
	events := parseEvents(t, data)
	res := events[len(events)-1].Result
	if n := strings.Count(res.Output, "redacted"); n != 5 || !strings.HasSuffix(res.Output, "use [OPENAI_API_KEY redacted]") {
		t.Errorf("output = %q", res.Output)
	}
	h.noSecret("the stream", string(data))
	h.noSecret("the log", h.log.String())
	var kept []string
	for _, a := range res.Artifacts {
		if a.Skipped != "" {
			continue
		}
		kept = append(kept, a.Name)
		path := "/v1/executions/" + res.ExecutionID + "/artifacts/" + url.PathEscape(a.Name)
		if resp, data := h.do(http.MethodGet, path, ""); resp.StatusCode != 200 || string(data) != "kept\n" {
			t.Errorf("%s: %s %q", a.Name, resp.Status, data)
		}
	}
	const mark = "[ANTHROPIC_API_KEY redacted]"
	slices.Sort(kept)
	if want := []string{mark + ".txt", mark + "/" + mark + ".txt"}; !slices.Equal(kept, want) || len(res.Artifacts) != 5 {
		t.Errorf("artifacts %+v, kept %q, want %q", res.Artifacts, kept, want)
	}
	err := filepath.WalkDir(h.config.State, func(path string, d os.DirEntry, err error) error {
		h.noSecret("a name", path)
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.ReadFile(path)
		h.noSecret(path, string(f))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if env := h.backend.jobs[0].Env; !slices.Contains(env, "ANTHROPIC_API_KEY="+secretKey) {
		t.Errorf("the control: the key did not reach the sandbox: %v", env)
	}
}

// quoted is s as a JSON string.
func quoted(s string) string {
	data, _ := json.Marshal(s)
	return string(data)
}

// noSecret checks that neither key is in a text, be it as JSON or encoded.
func (h *harness) noSecret(where, text string) {
	h.t.Helper()
	var plain strings.Builder
	enc := json.NewEncoder(&plain)
	enc.SetEscapeHTML(false)
	enc.Encode(oddKey)
	for _, secret := range []string{secretKey, oddKey, strings.Trim(quoted(oddKey), `"`), strings.Trim(plain.String(), "\"\n"),
		base64.StdEncoding.EncodeToString([]byte(secretKey)), hex.EncodeToString([]byte(secretKey)), url.QueryEscape(oddKey)} {
		if strings.Contains(text, secret) {
			h.t.Errorf("the key is in %s", where)
		}
	}
}
