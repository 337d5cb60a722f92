package scripts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const prepare = ". scripts/env.sh && . scripts/state.sh && prepare_state && "

// TestRenewedCAReachesTheExecutor wants that the executor is told of a file which
// it sees by its directory: of a file that is mounted alone it would keep the one
// that was there when it started.
func TestRenewedCAReachesTheExecutor(t *testing.T) {
	const config = "compose config executor"
	for name, file := range map[string]string{"in the environment": "", "in the operator's file": "executor.env"} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			ca := write(t, filepath.Join(t.TempDir(), "ca.pem"), "the first", 0o600)
			env := []string{"SALLYPORT_STATE=" + state}
			if file == "" {
				env = append(env, "SALLYPORT_EXTRA_CA="+ca)
			} else {
				write(t, filepath.Join(state, file), "# ours\nSALLYPORT_EXTRA_CA=\""+ca+"\" # renewed by hand\n", 0o600)
			}
			own := filepath.Join(state, "extra-ca.pem")
			first := mustBash(t, env, prepare+config)
			if !strings.Contains(first, "SALLYPORT_EXTRA_CA: "+own+"\n") || !strings.Contains(first, "target: "+state+"\n") || strings.Contains(first, ca) {
				t.Fatalf("the executor is not told of a file in the directory that it has:\n%s", first)
			}
			if got := read(t, own); got != "the first" {
				t.Errorf("the copy is %q", got)
			}
			open, err := os.Open(own)
			if err != nil {
				t.Fatal(err)
			}
			defer open.Close()

			write(t, ca, "the second", 0o600)
			if again := mustBash(t, env, prepare+config); again != first {
				t.Errorf("a renewed certificate changes the stack, which would end runs:\n%s\n%s", first, again)
			}
			if got := read(t, own); got != "the second" {
				t.Errorf("the renewed copy is %q", got)
			}
			old := make([]byte, 20)
			if n, _ := open.Read(old); string(old[:n]) != "the first" {
				t.Errorf("whoever was reading the old one got %q: it was written over", old[:n])
			}
		})
	}
	// The copy itself may be what the operator names and keeps.
	state := t.TempDir()
	own := write(t, filepath.Join(state, "extra-ca.pem"), "kept", 0o644)
	mustBash(t, []string{"SALLYPORT_STATE=" + state, "SALLYPORT_EXTRA_CA=" + own}, prepare+"true")
	if got := read(t, own); got != "kept" {
		t.Errorf("the operator's own is %q", got)
	}
}

// TestCommandLineFindsEachStack wants that the scripts and the command line mean one
// directory by the name of a stack.
func TestCommandLineFindsEachStack(t *testing.T) {
	for _, stack := range []string{"sallyport", "no-such-stack"} {
		env := []string{"SALLYPORT_STACK=" + stack, "XDG_STATE_HOME=" + t.TempDir()}
		want := strings.TrimSpace(mustBash(t, env, `. scripts/env.sh && echo "$SALLYPORT_STATE"`))
		out, err := bash(env, "go run ./cmd/sallyport doctor --addr http://127.0.0.1:1")
		if !strings.Contains(out+fmt.Sprint(err), want+"/token") {
			t.Errorf("the scripts say %s, the command line\n%s%v", want, out, err)
		}
	}
}

// TestTokenInForceIsTheOnePrinted compares the token that the executor takes with
// the one that the command line finds, wherever it was set.
func TestTokenInForceIsTheOnePrinted(t *testing.T) {
	program := filepath.Join(t.TempDir(), "sallyport")
	mustBash(t, nil, "go build -buildvcs=false -o "+program+" ./cmd/sallyport")
	const long = "0123456789abcdef-"
	for _, tt := range []struct {
		name, environment, file string
		want                    string // empty for one that is made
	}{
		{"nowhere", "", "", ""},
		{"in the environment", long + "env", "", long + "env"},
		{"in the operator's file", "", "SALLYPORT_TOKEN='" + long + "file'\n", long + "file"},
		{"in both", long + "env", "export SALLYPORT_TOKEN=" + long + "file\n", long + "env"},
		{"of another stack", "", "SALLYPORT_TOKEN_FILE=/etc/hostname\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state := t.TempDir()
			env := []string{"SALLYPORT_STATE=" + state}
			if tt.environment != "" {
				env = append(env, "SALLYPORT_TOKEN="+tt.environment)
			}
			if tt.file != "" {
				write(t, filepath.Join(state, "executor.env"), tt.file, 0o600)
			}
			write(t, filepath.Join(state, "token"), "", 0o644)
			config := mustBash(t, env, prepare+"compose config executor")
			// A shell that was told nothing but where the state is.
			printed := strings.TrimSpace(mustBash(t, env[:1], program+" token"))
			if tt.want != "" && printed != tt.want || len(printed) < 16 {
				t.Errorf("the command line prints %q, want %q", printed, tt.want)
			}
			if tt.want != "" && !strings.Contains(config, "SALLYPORT_TOKEN: "+tt.want+"\n") {
				t.Errorf("the executor gets another:\n%s", config)
			}
			if !strings.Contains(config, "SALLYPORT_TOKEN_FILE: "+state+"/token\n") {
				t.Errorf("the executor reads another file:\n%s", config)
			}
			if info, err := os.Stat(filepath.Join(state, "token")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the token's file: %v, %v", info.Mode(), err)
			}
			mustBash(t, env[:1], prepare+"true")
			if again := strings.TrimSpace(mustBash(t, env[:1], program+" token")); again != printed && tt.file == "" {
				t.Errorf("the next start makes another token: %q after %q", again, printed)
			}
		})
	}
	for _, bad := range []string{"too-short", long + " with blanks"} {
		state := t.TempDir()
		write(t, filepath.Join(state, "token"), long+"before\n", 0o600)
		if out, err := bash([]string{"SALLYPORT_STATE=" + state, "SALLYPORT_TOKEN=" + bad}, prepare+"true"); err == nil || !strings.Contains(err.Error(), "SALLYPORT_TOKEN") {
			t.Errorf("the token %q: %v\n%s", bad, err, out)
		}
		if got := read(t, filepath.Join(state, "token")); got != long+"before\n" {
			t.Errorf("a bad token takes the place of %q: %q", long+"before", got)
		}
	}
}

// TestOthersCannotReadKeys wants that a file with keys which every user of the
// machine can read does not stay so.
func TestOthersCannotReadKeys(t *testing.T) {
	for _, tt := range []struct {
		mode, want os.FileMode
	}{
		{0o644, 0o640}, {0o666, 0o660}, {0o602, 0o600}, // the faults
		{0o600, 0o600}, {0o640, 0o640}, {0o400, 0o400}, // as they should be
	} {
		state := t.TempDir()
		file := write(t, filepath.Join(state, "executor.env"), "OPENAI_API_KEY=x\n", tt.mode)
		said := mustBash(t, []string{"SALLYPORT_STATE=" + state}, "("+prepare+"true) 2>&1")
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != tt.want {
			t.Errorf("mode %#o became %#o, want %#o", tt.mode, got, tt.want)
		}
		if strings.Contains(said, "executor.env") != (tt.mode != tt.want) {
			t.Errorf("mode %#o: said %q", tt.mode, said)
		}
	}
}

// TestRelativeDirectories wants absolute ones for the engine.
func TestRelativeDirectories(t *testing.T) {
	config := mustBash(t, []string{"SALLYPORT_STATE=bin/no-such-state", "SALLYPORT_ROOT=./bin/../no-such-root"}, ". scripts/env.sh && compose config executor")
	top, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SALLYPORT_STATE: " + top + "/bin/no-such-state\n", "target: " + top + "/bin/no-such-state\n",
		"SALLYPORT_ROOTS: " + top + "/no-such-root\n", "source: " + top + "/no-such-root\n", "target: " + top + "/no-such-root\n"} {
		if !strings.Contains(config, want) {
			t.Errorf("there is no %s in\n%s", want, config)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRootIsClosed: the directory where agents leave files is for its owner alone, and of
// an open one it is said.
func TestRootIsClosed(t *testing.T) {
	state := t.TempDir()
	env := []string{"SALLYPORT_STATE=" + state}
	root := filepath.Join(state, "root")
	for _, tt := range []struct {
		mode os.FileMode
		said bool
	}{{0o700, false}, {0o755, true}, {0o750, false}} {
		if tt.mode != 0o700 {
			if err := os.Chmod(root, tt.mode); err != nil {
				t.Fatal(err)
			}
		}
		out := mustBash(t, env, "{ "+prepare+"true; } 2>&1")
		info, err := os.Stat(root)
		if err != nil || info.Mode().Perm() != tt.mode {
			t.Errorf("%v, %v, want mode %v", info, err, tt.mode)
		}
		if said := strings.Contains(out, "can enter "+root); said != tt.said {
			t.Errorf("mode %v: said: %v: %s", tt.mode, said, out)
		}
	}
}
