package compose_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sallyport/executor/api"
)

// wantError fails the test unless the result has the failure code.
func wantError(t *testing.T, res api.Result, code api.Code) {
	t.Helper()
	if res.Success || res.Error == nil || res.Error.Code != code {
		t.Errorf("the result is success=%v %+v, want %s", res.Success, res.Error, code)
	}
}

// gone fails the test unless the sandbox of the run leaves the engine in time.
func gone(t *testing.T, id string, within time.Duration) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		left := docker(t, "ps", "-aq", "--filter", "label=org.sallyport.run="+id)
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the sandbox of %s is still there after %s", id, within)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestTimeLimit has a run that takes no notice of TERM come to its limit.
//
// probe: L8
// oracle: the engine, which has no sandbox left 10 s after the limit, and the result
func TestTimeLimit(t *testing.T) {
	before := time.Now()
	run(t, bash("strict", "true"))
	limit := 3*time.Second + 3*time.Since(before) // the agent must have started by then, on a slow machine too
	req := bash("strict", `trap '' TERM; echo started; sleep 300 & sleep 300; sleep 300`)
	req.Config.TimeoutMS = limit.Milliseconds()
	id := begin(t, req) // at most the limit before its end
	gone(t, id, limit+10*time.Second)
	res := finish(t, id)
	wantError(t, res, api.CodeTimeout)
	if res.StopReason != "error_timeout" {
		t.Errorf("stopReason is %q, want error_timeout", res.StopReason)
	}
}

func TestMemoryLimit(t *testing.T) {
	res, _ := run(t, bash("strict", `python3 -c 'x = []
while True: x.append(bytearray(64 << 20))'`))
	wantError(t, res, api.CodeMemory)
}

// TestScratchDirectoriesAreBounded fills one of them.
//
// probe: C9
// oracle: the status of the program that writes
func TestScratchDirectoriesAreBounded(t *testing.T) {
	out, _ := output(t, "strict", `head -c 4G /dev/zero > /tmp/fill 2>/dev/null; echo status $?`)
	if !strings.Contains(out, "status 1") {
		t.Errorf("4 GiB went into /tmp: %q", out)
	}
}

// TestOutputLimit prints without end.
//
// probe: F7
// oracle: the result's mark and length, and the executor's peak of memory
func TestOutputLimit(t *testing.T) {
	res, _ := run(t, bash("strict", `yes "endless output of an agent"`))
	wantError(t, res, api.CodeOutputTooLarge)
	if !res.OutputTruncated || len(res.Output) > 2<<20 {
		t.Errorf("the output has %d bytes, truncated=%v; want at most 2 MiB and the mark", len(res.Output), res.OutputTruncated)
	}
	if peak := peakMemory(t, container(t, "executor", "")); peak > 256<<20 {
		t.Errorf("the executor used %d MiB with endless output", peak>>20)
	}
}

// peakMemory is the most that a container's first process had resident, in bytes.
func peakMemory(t *testing.T, id string) int64 {
	t.Helper()
	for l := range strings.Lines(ofPID1(t, id, "status")) {
		if kb, ok := strings.CutPrefix(l, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.Fields(kb)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// TestDiskLimit fills the workspace.
//
// probe: C9
// oracle: the code of the result
func TestDiskLimit(t *testing.T) {
	res, _ := run(t, bash("strict", `head -c 200M /dev/zero > /workspace/fill; sleep 60`))
	wantError(t, res, api.CodeDisk)
}

// TestWorkspaceOfUnkindShape nests 2,000 directories with long names and makes
// 100,000 files.
//
// probe: C13
// oracle: the executor's peak of memory, the state directory, and the next run
func TestWorkspaceOfUnkindShape(t *testing.T) {
	res, _ := run(t, bash("strict", `python3 -c '
import os
for i in range(100000): os.close(os.open("w" * 240 + str(i), os.O_CREAT | os.O_WRONLY))
for i in range(2000): os.mkdir("d" * 250); os.chdir("d" * 250)
'; sleep 60`))
	wantError(t, res, api.CodeDisk)
	if peak := peakMemory(t, container(t, "executor", "")); peak > 256<<20 {
		t.Errorf("the executor used %d MiB", peak>>20)
	}
	if _, err := os.Lstat(filepath.Join(st.state, "workspaces", res.ExecutionID)); !os.IsNotExist(err) {
		t.Errorf("the workspace is still there: %v", err)
	}
	output(t, "strict", "echo fine")
}

// TestForkBombStaysInItsSandbox forks without end.
//
// probe: C8
// oracle: how far the program came, and the next run
func TestForkBombStaysInItsSandbox(t *testing.T) {
	res, _ := run(t, bash("strict", `python3 -c '
import os, time
n = 0
try:
    while n < 5000:
        if os.fork() == 0: time.sleep(60); os._exit(0)
        n += 1
except OSError as e: print("stopped", n)
'`))
	if !strings.Contains(res.Output, "stopped") {
		t.Errorf("5000 processes were started: %q %+v", res.Output, res.Error)
	}
	output(t, "strict", "echo fine")
}

func TestExitCode(t *testing.T) {
	res, _ := run(t, bash("strict", `echo partial; exit 7`))
	wantError(t, res, api.CodeCommandFailed)
	if res.Error != nil && res.Error.Details["exitCode"] != float64(7) {
		t.Errorf("details are %v, want exitCode 7", res.Error.Details)
	}
	if res.Output != "partial\n" || res.StopReason != "error_exit_7" {
		t.Errorf("output %q, stopReason %q", res.Output, res.StopReason)
	}
}

// TestArtifacts leaves files of all kinds to be kept.
//
// probe: F1, F4
// oracle: what the store has kept and what it says that it left out
func TestArtifacts(t *testing.T) {
	req := bash("strict", `mkdir -p out; echo one > out/one.txt; echo '#!/bin/sh' > out/two.sh; ln -s /etc/passwd out/link.txt; mkfifo out/pipe.txt; ln -s ../../../../etc out/dir`)
	req.Config.Artifacts = []string{"out/**"}
	res, _ := run(t, req)
	kept := map[string]api.Artifact{}
	for _, a := range res.Artifacts {
		kept[a.Name] = a
	}
	if a := kept["out/one.txt"]; a.Size != 4 || a.SHA256 != "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806" {
		t.Errorf("out/one.txt was kept as %+v", a)
	}
	for _, name := range []string{"out/link.txt", "out/pipe.txt", "out/dir"} {
		if a, ok := kept[name]; ok && a.Skipped == "" {
			t.Errorf("%s was kept: %+v", name, a)
		}
	}
	body, err := st.Artifact(t.Context(), res.ExecutionID, "out/one.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if b, _ := io.ReadAll(body); string(b) != "one\n" {
		t.Errorf("out/one.txt reads %q", b)
	}
}

// TestCallersDirectory: a caller's directory is used as its owner, keeps no set-id bits,
// and is refused while it holds a way to a daemon of the host.
//
// probe: C17, C18
// oracle: the files in the directory, and the daemon that listens there
func TestCallersDirectory(t *testing.T) {
	dir := filepath.Join(st.root, "caller")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	req := bash("strict", `id -u; echo made > file; cp /bin/true planted; chmod 6755 planted; stat -c %a planted; whoami; node -e 'console.log(require("os").userInfo().uid)'`)
	req.Config.CWD = dir
	res, _ := run(t, req)
	if !res.Success || !strings.HasPrefix(res.Output, "4321\n6755\n") || !strings.HasSuffix(res.Output, "4321\n") {
		t.Errorf("output %q %+v, want the owner's uid", res.Output, res.Error)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); string(b) != "made\n" {
		t.Errorf("the file in the caller's directory reads %q %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "planted")); err != nil || info.Mode() != 0o755 {
		t.Errorf("the planted file: %v, %v", info, err)
	}
	daemon, err := net.Listen("unix", filepath.Join(dir, "daemon.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	res, _ = run(t, req)
	wantError(t, res, api.CodeStartFailed)
	if !strings.Contains(res.Error.Message, `"daemon.sock"`) || res.Output != "" {
		t.Errorf("%v, output %q", res.Error, res.Output)
	}
}
