package executor_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/audit"
	"sallyport/executor/secrets"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

const (
	releaseToken = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	signingKey   = "-----BEGIN KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\n-----END KEY-----\n"
)

// withSecrets is a profile that may have two secrets, and the directory where they are.
func withSecrets(t *testing.T) (dir string, change []func(*executor.Config)) {
	t.Helper()
	dir = t.TempDir()
	putSecret(t, dir, "s", releaseToken+"\n")
	putSecret(t, dir, "file-of-s", signingKey)
	_, profiles := withProfiles(t, governed(whole))
	files := func(c *executor.Config) {
		c.SecretSources = append(c.SecretSources, secrets.Source{Name: "the files", Provider: secrets.Directory(dir)})
	}
	return dir, []func(*executor.Config){profiles, files}
}

func putSecret(t *testing.T, dir, name, value string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, ".next"), []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, ".next"), filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// naming is the body of a command whose task names these secrets.
func naming(body string, names ...string) string {
	return strings.TrimSuffix(body, "}") + fmt.Sprintf(`,"opts":{"security":{"secrets":["%s"]}}}`, strings.Join(names, `","`))
}

// kept is all that is on disk of an executor, names and contents.
func (h *harness) kept() string {
	h.t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(h.config.State, func(path string, d os.DirEntry, err error) error {
		all.WriteString(path + "\n")
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all.String()
}

// TestTaskSecrets: a task that names secrets has them, in a variable and in a file; a task
// that does not has none of them. Whatever the first prints, they are kept nowhere.
//
// probe: K1
// oracle: the job as it went over the wire
func TestTaskSecrets(t *testing.T) {
	t.Parallel()
	_, change := withSecrets(t)
	h := start(t, change...)
	const script = `echo "$S"; cat "$S_FILE"; cat "$S_FILE" >&2; printf %s "$S" | base64; printf %s "$S" | od -An -v -tx1 | tr -d ' \n'; echo; stat -c %a "$S_FILE"; cat; echo x >"$S"; echo "$S" >inside; echo none >clean`
	body := naming(strings.Replace(command(script, `"artifacts":["**"]`), `"the prompt"`, quoted("use "+releaseToken), 1), "s", "file-of-s")
	resp, data := h.do(http.MethodPost, "/v1/executions", body, "Accept", "application/x-ndjson")
	if resp.StatusCode != 200 {
		t.Fatalf("%s: %s", resp.Status, data)
	}
	events := parseEvents(t, data)
	res := *events[len(events)-1].Result
	if !res.Success || strings.Count(res.Output, "[s redacted]") != 4 || !strings.Contains(res.Output, "[file-of-s redacted]") || !strings.Contains(res.Output, "\n400\n") || !strings.HasSuffix(res.Output, "use [s redacted]") {
		t.Errorf("result %+v", res)
	}
	var artifacts []string
	for _, a := range res.Artifacts {
		artifacts = append(artifacts, a.Name+" "+a.Skipped)
	}
	if slices.Sort(artifacts); !slices.Equal(artifacts, []string{"[s redacted] ", "clean ", "inside there is a secret in it"}) {
		t.Errorf("artifacts %q", artifacts)
	}
	if p := res.EffectivePolicy; !slices.Equal(p.Secrets, []string{"s", "file-of-s"}) || p.SecretPolicy != "task-scoped" {
		t.Errorf("policy %+v", p)
	}
	job := h.backend.jobs[len(h.backend.jobs)-1]
	if !slices.Contains(job.Env, "S="+releaseToken) || !bytes.Equal(job.Files[len(job.Files)-1].Content, []byte(signingKey)) {
		t.Errorf("the control: the job has %v", job)
	}
	records, _ := audited(t, h.config.State, res)
	if want := []string{"ANTHROPIC_API_KEY", "s", "file-of-s"}; len(records) != 1 || !slices.Equal(records[0].Command.Secrets, want) || !slices.Contains(records[0].Command.Environment, "S_FILE") {
		t.Errorf("records %+v", records)
	}

	other := h.post(command(`env; ls /run/sallyport/secrets; echo "${S:-none} ${S_FILE:-none}"`))
	job = h.backend.jobs[len(h.backend.jobs)-1]
	if !strings.HasSuffix(other.Output, "none none\n") || len(other.EffectivePolicy.Secrets) != 0 || strings.Contains(fmt.Sprint(job), releaseToken) {
		t.Errorf("a task that names none: %+v, its job %v", other, job)
	}
	all := h.kept() + string(data) + h.log.String()
	for _, form := range []string{releaseToken, base64.StdEncoding.EncodeToString([]byte(releaseToken)), hex.EncodeToString([]byte(releaseToken)), strings.Split(signingKey, "\n")[1]} {
		if strings.Contains(all, form) {
			t.Errorf("%q is kept", form)
		}
	}
}

// TestSecretsAreRotated: what takes a secret's place is what the next run gets, and from
// then on it is taken out as well; so with a provider's key.
func TestSecretsAreRotated(t *testing.T) {
	t.Parallel()
	dir, change := withSecrets(t)
	putSecret(t, dir, "OPENAI_API_KEY", "sk-openai-0123456789-a\n")
	h := start(t, change...)
	for _, letter := range []string{"a", "b", "c"} {
		token, key := releaseToken[:20]+strings.Repeat(letter, 20), "sk-openai-0123456789-"+letter
		putSecret(t, dir, "s", token)
		putSecret(t, dir, "OPENAI_API_KEY", key)
		res := h.post(naming(command(`echo "$S $OPENAI_API_KEY"`, `"agentContext":`+quoted(key)), "s"))
		job := h.backend.jobs[len(h.backend.jobs)-1]
		if res.Output != "[s redacted] [OPENAI_API_KEY redacted]\n" || !slices.Contains(job.Env, "S="+token) || !slices.Contains(job.Env, "OPENAI_API_KEY="+key) {
			t.Errorf("%s: output %q, environment %v", letter, res.Output, job.Env)
		}
		if all := h.kept(); strings.Contains(all, token) || strings.Contains(all, key) {
			t.Errorf("%s: one of them is kept", letter)
		}
	}
	if err := os.Remove(filepath.Join(dir, "OPENAI_API_KEY")); err != nil {
		t.Fatal(err)
	}
	if res := h.post(command(`echo "${OPENAI_API_KEY:-none}"`)); res.Output != "none\n" {
		t.Errorf("a key that is there no more: %q", res.Output)
	}
}

// TestSecretUnavailable: a run whose secret is not to be had ends before anything starts,
// and says why without saying where secrets lie.
func TestSecretUnavailable(t *testing.T) {
	t.Parallel()
	dir, change := withSecrets(t)
	h := start(t, change...)
	path := filepath.Join(dir, "s")
	body := naming(command("true"), "s")
	for reason, spoil := range map[secrets.Reason]func() error{
		secrets.Unknown:    func() error { return os.Remove(path) },
		secrets.Unfit:      func() error { return os.WriteFile(path, []byte("12345678901\n"), 0o600) },
		secrets.Unreadable: func() error { return os.Chmod(path, 0o644) },
		secrets.Ambiguous: func() error {
			h.config.SecretSources[0].Provider.(secrets.Values)["s"] = releaseToken
			return nil
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		before := len(h.backend.specs)
		id := h.begin(body)
		res := h.finish(id)
		wantCode(t, res, api.CodeSecret)
		if res.Error.Details["secret"] != "s" || res.Error.Details["reason"] != string(reason) || res.Error.Retryable != (reason == secrets.Unreadable) || strings.Contains(res.Error.Message, dir) {
			t.Errorf("%s: %+v", reason, res.Error)
		}
		if len(h.backend.specs) != before || slices.ContainsFunc(h.events(id, ""), func(ev api.Event) bool { return ev.Stage == "cell" || ev.Stage == "start" }) {
			t.Errorf("%s: something was started", reason)
		}
		records, _ := audited(t, h.config.State, res)
		if len(records) != 1 || records[0].Outcome.Code != string(api.CodeSecret) || records[0].Outcome.State != audit.StateFinished {
			t.Errorf("%s: records %+v", reason, records)
		}
		h.wantClean()
		delete(h.config.SecretSources[0].Provider.(secrets.Values), "s")
		putSecret(t, dir, "s", releaseToken)
		if res := h.post(body); !res.Success {
			t.Errorf("%s, the control: %+v", reason, res.Error)
		}
	}
	if !strings.Contains(h.log.String(), path+" has the mode 0644") {
		t.Error("the log does not say what is wrong with the file")
	}
	h.end()
	putSecret(t, dir, "ANTHROPIC_API_KEY", "another-anthropic-key")
	if _, err := executor.New(h.config); err == nil || !strings.Contains(err.Error(), "the tests and the files both have it") {
		t.Errorf("an executor with a key in two places: %v", err)
	}
}

// TestSecretsOfLostRuns: what the gate tells of a run whose executor died is redacted with
// the secrets that the run had.
func TestSecretsOfLostRuns(t *testing.T) {
	t.Parallel()
	_, change := withSecrets(t)
	h := start(t, change...)
	id := h.begin(naming(command("echo begun; sleep 60"), "s"))
	h.awaitText(id, "begun")
	killed := filepath.Join(t.TempDir(), "state")
	copyState(t, killed, h.config.State)
	h.end()
	h.config.State = killed
	final := account.Receipt{Policy: "strict", Hosts: []account.ReceiptHost{{Host: strings.ToLower(releaseToken) + ".example", Kind: account.KindDNS, Verdict: firewall.Deny, Count: 1}}}
	h.config.Boot = func(context.Context) (map[string]account.Receipt, error) {
		return map[string]account.Receipt{id: final}, nil
	}
	h.boot()
	res := *get[api.Execution](h, "/v1/executions/"+id).Result
	wantCode(t, res, api.CodeLost)
	if hosts := res.Receipt.Hosts; len(hosts) != 1 || hosts[0].Host != "[s redacted].example" {
		t.Errorf("the receipt has %+v", hosts)
	}
	if strings.Contains(strings.ToLower(h.kept()), strings.ToLower(releaseToken)) {
		t.Error("the secret is kept")
	}
}
