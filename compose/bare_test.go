package compose_test

import (
	"os"
	"strings"
	"testing"

	"sallyport/executor/api"
)

// demoKey is the provider key that the demo's executor has.
const demoKey = "sk-ant-demo-key"

// TestSandboxIsBare looks around in a sandbox of the whole stack.
//
// probe: C1, C2, C3, C7, C10
// oracle: the kernel's status of the process, and what could be read and written; the
// scratch directories are
func TestSandboxIsBare(t *testing.T) {
	out, _ := output(t, "strict", `
echo uid $(id -u) $(id -G)
grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d ':' | tr '\t' ' '
python3 - <<'P'
import os
print("fds", *sorted(f for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f) and not os.readlink("/proc/self/fd/" + f).startswith("/proc/")))
P
echo sockets $(find / -xdev -type s 2>/dev/null) $(ls /var/run/docker.sock /run/docker.sock 2>/dev/null)
for d in / /etc /usr /sallyport /usr/local/bin; do touch $d/x 2>/dev/null && echo writable $d; done
for d in /tmp /workspace $HOME; do touch $d/x && echo scratch $d; done
echo setuid $(find / -xdev -perm /6000 -type f 2>/dev/null)
cat /proc/1/environ /proc/1/mem 2>/dev/null | head -c 10 | wc -c | xargs echo pid1
ls /proc/1/fd >/dev/null 2>&1 && echo pid1fd readable
echo forged 2>/dev/null > /proc/1/fd/1 && echo pid1fd writable
unshare -Ur true 2>/dev/null && echo unshare possible
mount -t tmpfs none /tmp 2>/dev/null && echo mount possible
echo core $(ulimit -c)
true`)
	got := lines(out)
	want := map[string]string{"uid": "10001 10001", "CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2", "fds": "0 1 2",
		"sockets": "", "setuid": "", "pid1": "0", "core": "0"}
	for k, w := range want {
		if v, ok := got[k]; !ok || v != w {
			t.Errorf("%s is %q, want %q", k, v, w)
		}
	}
	for _, bad := range []string{"writable", "pid1fd", "unshare", "mount"} {
		if v, ok := got[bad]; ok {
			t.Errorf("%s: %s", bad, v)
		}
	}
	if strings.Count(out, "scratch") != 3 {
		t.Errorf("not all of the scratch directories are writable:\n%s", out)
	}
}

// TestEnvironmentIsWhatWasIntended compares all of it.
func TestEnvironmentIsWhatWasIntended(t *testing.T) {
	const ca, who, email = "/run/sallyport/ca.crt", "sallyport agent", "agent@sallyport.invalid"
	want := map[string]string{
		"ANTHROPIC_API_KEY": "[ANTHROPIC_API_KEY redacted]", // as an output shows it
		// Unset, a program might look for the key where it was started; empty, there is none.
		"GITHUB_APP_PRIVATE_KEY_PATH": "",
		"HOME":                        "/home/agent", "USER": "agent", "LOGNAME": "agent", "SHELL": "/bin/bash", "TMPDIR": "/tmp",
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "dumb",
		"GIT_AUTHOR_NAME": who, "GIT_AUTHOR_EMAIL": email, "GIT_COMMITTER_NAME": who, "GIT_COMMITTER_EMAIL": email, "GIT_TERMINAL_PROMPT": "0",
		"SSL_CERT_FILE": ca, "CURL_CA_BUNDLE": ca, "REQUESTS_CA_BUNDLE": ca, "AWS_CA_BUNDLE": ca, "GIT_SSL_CAINFO": ca, "NODE_EXTRA_CA_CERTS": ca, "PIP_CERT": ca,
		"PIP_RETRIES": "1", "npm_config_fetch_retry_mintimeout": "500", "npm_config_fetch_retry_maxtimeout": "2000", "npm_config_update_notifier": "false",
		"PWD": "/workspace", "SHLVL": "1", "_": "/usr/bin/env", // bash's own
	}
	out, _ := output(t, "strict", `env -0 | tr '\0\n' '\n '`)
	for l := range strings.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "=")
		if w, ok := want[name]; !ok {
			t.Errorf("the environment holds %s=%q, which nobody intended", name, value)
		} else if value != w {
			t.Errorf("%s is %q, want %q", name, value, w)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("the environment lacks %s", name)
	}
}

func TestNoSecretIsOnTheEngine(t *testing.T) {
	const prompt = "a prompt that nobody else may read"
	req := bash("strict", `cat; env | grep -c ANTHROPIC; sleep 300`)
	req.Prompt = prompt
	id := begin(t, req)
	defer cancelRun(t, id)
	sandbox := container(t, "sandbox", id)

	logDriver := docker(t, "inspect", "-f", "{{.HostConfig.LogConfig.Type}}", sandbox)
	if logDriver != "none" {
		t.Errorf("the engine logs the agent's output with %q, want none", logDriver)
	}
	for where, what := range map[string]string{
		"docker inspect of the sandbox":     docker(t, "inspect", sandbox),
		"docker history of the agent image": docker(t, "history", "--no-trunc", "sallyport/agent:dev"),
		"docker inspect of the agent image": docker(t, "image", "inspect", "sallyport/agent:dev"),
		"the environment of PID 1":          ofPID1(t, sandbox, "environ"),
		"the command line of PID 1":         ofPID1(t, sandbox, "cmdline"),
	} {
		for _, secret := range []string{demoKey, prompt, "BEGIN CERTIFICATE"} {
			if strings.Contains(what, secret) {
				t.Errorf("%s holds %q", where, secret)
			}
		}
	}
	// The control: the agent itself has the key.
	if got := text(eventsSoFar(t, id), api.EventOutput); !strings.Contains(got, prompt) {
		t.Errorf("control: the agent printed %q, want its prompt", got)
	}
}

// ofPID1 reads a file of /proc about the first process of a container, as the
// host's root may.
func ofPID1(t *testing.T, id, name string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/" + docker(t, "inspect", "-f", "{{.State.Pid}}", id) + "/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// eventsSoFar is what an execution has said until now.
func eventsSoFar(t *testing.T, id string) (all []api.Event) {
	t.Helper()
	for e, err := range st.Events(t.Context(), id, 0, false) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func TestSecretsAreNotInWhatIsKept(t *testing.T) {
	res, events := run(t, bash("strict", `echo key $ANTHROPIC_API_KEY; echo $ANTHROPIC_API_KEY >&2; printf 'sk-ant'; sleep 0.2; printf -- '-demo\n'`))
	for _, kept := range []string{res.Output, text(events, api.EventOutput), text(events, api.EventStderr)} {
		if strings.Contains(kept, demoKey) {
			t.Errorf("the provider key is kept in %q", kept)
		}
	}
	if !strings.Contains(res.Output, "key ") {
		t.Errorf("control: the output is %q", res.Output)
	}
}
