package executor_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/executor"
	"sallyport/executor/api"
	"sallyport/executor/archive"
)

// TestBackup backs an executor up while it works, and starts another one on the backup: what
// had ended is there, with its files, keys and audit records, and what was under way is lost.
func TestBackup(t *testing.T) {
	h := start(t, func(c *executor.Config) { c.MaxRuns, c.Queue = 4, 100 })
	const runs = 5
	body := command("echo kept > kept.txt; echo out", `"artifacts":["*.txt"]`)
	var before []api.Result
	for i := range runs {
		before = append(before, h.post(of("before", body), "Idempotency-Key", fmt.Sprint("key-", i)))
	}
	waits := h.begin(of("during", command("echo begun; sleep 60")))
	h.awaitText(waits, "begun")
	backup := h.backup()
	state := h.config.State
	h.end()

	h.config.State = filepath.Join(t.TempDir(), "state")
	if err := archive.Restore(t.Context(), bytes.NewReader(backup), h.config.State); err != nil {
		t.Fatal(err)
	}
	h.boot()
	defer func() { h.end() }()
	for i, want := range before {
		if got := h.post(of("before", body), "Idempotency-Key", fmt.Sprint("key-", i)); !reflect.DeepEqual(got, want) {
			t.Errorf("the result is %+v, was %+v", got, want)
		}
		if resp, data := h.do(http.MethodGet, "/v1/executions/"+want.ExecutionID+"/artifacts/kept.txt", ""); string(data) != "kept\n" {
			t.Errorf("the artifact is %s: %q", resp.Status, data)
		}
		if events := h.events(want.ExecutionID, ""); events[len(events)-1].Result == nil {
			t.Error("the events lack their end")
		}
		if records, _ := audited(t, h.config.State, want); len(records) != 1 {
			t.Errorf("%d audit records", len(records))
		}
	}
	wantCode(t, h.finish(waits), api.CodeLost)
	if list := get[api.ExecutionList](h, "/v1/executions?taskId=before&limit=100"); len(list.Executions) != runs {
		t.Errorf("%d runs are listed", len(list.Executions))
	}
	for _, x := range get[api.ExecutionList](h, "/v1/executions?taskId=load&limit=100").Executions {
		if res := h.finish(x.ID); res.Error != nil && res.Error.Code != api.CodeLost {
			t.Errorf("a run of the load: %v", res.Error)
		}
	}
	if res := h.post(command("true")); !res.Success {
		t.Errorf("a new run: %v", res.Error)
	}

	for dir, want := range map[string]string{h.config.State: "another executor", state: "it holds "} {
		if err := archive.Restore(t.Context(), bytes.NewReader(backup), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("restored where there is something: %v", err)
		}
	}
}

// backup backs up under load, several times, and returns the last backup.
func (h *harness) backup() []byte {
	h.t.Helper()
	var stop atomic.Bool
	var load sync.WaitGroup
	for range 3 {
		load.Go(func() {
			for !stop.Load() {
				h.begin(of("load", command("echo a; echo b > b.txt", `"artifacts":["*.txt"]`)))
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	var backup bytes.Buffer
	for range 5 {
		backup.Reset()
		if err := archive.Write(h.t.Context(), &backup, h.config.State); err != nil {
			h.t.Error(err)
		}
	}
	stop.Store(true)
	load.Wait()
	return backup.Bytes()
}

// TestBadBackups restores what is no backup, or not a whole one: nothing of it stays.
func TestBadBackups(t *testing.T) {
	h := start(t)
	h.post(command("true"))
	var good bytes.Buffer
	if err := archive.Write(t.Context(), &good, h.config.State); err != nil {
		t.Fatal(err)
	}
	entry := func(h tar.Header, content string) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		h.Size, h.Mode = int64(len(content)), 0o600
		if h.Typeflag == tar.TypeSymlink {
			h.Size = 0
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			fmt.Fprint(w, content)
		}
		w.Flush()
		return b.Bytes()
	}
	head := entry(tar.Header{Name: "sallyport-backup.json"}, `{"format":1}`)
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "no backup of sallyport"},
		{"another file", []byte(strings.Repeat("text ", 1000)), "no backup of sallyport"},
		{"a later format", entry(tar.Header{Name: "sallyport-backup.json"}, `{"format":2}`), "the format 2"},
		{"half of it", good.Bytes()[:good.Len()/2], "has no end"},
		{"its head", head, "has no end"},
		{"a file less", append(bytes.Clone(head), entry(tar.Header{Name: "end.json"}, `{"files":1}`)...), "0 files and should have 1"},
		{"a path up", append(bytes.Clone(head), entry(tar.Header{Name: "executions/../../x"}, "x")...), "no backup holds"},
		{"an absolute path", append(bytes.Clone(head), entry(tar.Header{Name: "/executions/x"}, "x")...), "no backup holds"},
		{"a token", append(bytes.Clone(head), entry(tar.Header{Name: "token"}, "x")...), "no backup holds"},
		{"a link", append(bytes.Clone(head), entry(tar.Header{Name: "executions/x", Typeflag: tar.TypeSymlink, Linkname: "/"}, "")...), "no backup holds"},
	} {
		dir := filepath.Join(t.TempDir(), "state")
		if err := archive.Restore(t.Context(), bytes.NewReader(tt.data), dir); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "lock" {
			t.Errorf("%s has left %v, %v", tt.name, left, err)
		}
		if err := archive.Restore(t.Context(), bytes.NewReader(good.Bytes()), dir); err != nil {
			t.Errorf("after %s: %v", tt.name, err)
		}
	}
}
