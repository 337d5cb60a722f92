package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/state"
)

// open opens the store in dir, with a database beside it.
func open(t testing.TB, dir string) *Store {
	t.Helper()
	db, err := state.Open(context.Background(), dir+".db")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s, err := Open(db, dir, slog.New(slog.DiscardHandler), func(r Remains) api.Result {
		return api.Result{ExecutionID: r.Meta.ID, StopReason: "lost", Github: r.Github, Turns: count(r.Events)}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// find gets an execution, nil if there is none.
func find(t testing.TB, s *Store, id string) *Entry {
	t.Helper()
	e, err := s.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func create(t testing.TB, s *Store, id string) *Entry {
	t.Helper()
	e, err := s.Create(Meta{ID: id, Accepted: time.Now()}, []byte("{}"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func appendText(t testing.TB, e *Entry, text string) {
	t.Helper()
	if err := e.Append(api.Event{Type: api.EventText, Text: text}); err != nil {
		t.Fatal(err)
	}
}

// collect reads events and checks that their numbers have no gap.
func collect(t testing.TB, e *Entry, after int64, follow bool) []api.Event {
	t.Helper()
	var events []api.Event
	for line, err := range e.Events(context.Background(), after, follow) {
		if err != nil {
			t.Fatal(err)
		}
		var ev api.Event
		if err := json.Unmarshal(line.JSON, &ev); err != nil {
			t.Fatalf("%q: %v", line.JSON, err)
		}
		if after++; ev.Seq != after || line.Seq != after || line.Type() != ev.Type {
			t.Fatalf("event %d (%s) is line %d (%s), want %d", ev.Seq, ev.Type, line.Seq, line.Type(), after)
		}
		events = append(events, ev)
	}
	return events
}

func TestEvents(t *testing.T) {
	e := create(t, open(t, t.TempDir()), "a")
	if x, err := e.Execution(); err != nil || x.State != api.StateQueued {
		t.Errorf("%+v, %v", x, err)
	}
	e.Run()
	if x, err := e.Execution(); err != nil || x.State != api.StateRunning {
		t.Errorf("%+v, %v", x, err)
	}
	appendText(t, e, "one\nline, \u2028 and <html>")
	appendText(t, e, strings.Repeat("long", 100_000))
	if got := collect(t, e, 0, false); len(got) != 2 || got[0].Text != "one\nline, \u2028 and <html>" || len(got[1].Text) != 400_000 {
		t.Errorf("%d events", len(got))
	}
	if err := e.Finish(api.Result{Output: "done"}); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, e, 1, true); len(got) != 2 || got[1].Result.Output != "done" {
		t.Errorf("events after 1: %+v", got)
	}
	if got := collect(t, e, 3, true); len(got) != 0 {
		t.Errorf("events after the last: %+v", got)
	}
	if err := e.Append(api.Event{}); !errors.Is(err, ErrFinished) {
		t.Errorf("append after the end: %v", err)
	}
	if err := e.Finish(api.Result{}); !errors.Is(err, ErrFinished) {
		t.Errorf("finish after the end: %v", err)
	}
	if x, err := e.Execution(); err != nil || x.State != api.StateFinished || x.Result.Output != "done" {
		t.Errorf("%+v, %v", x, err)
	}
}

// TestFollow has several readers follow while events are written.
func TestFollow(t *testing.T) {
	e := create(t, open(t, t.TempDir()), "a")
	const n = 2000
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			if got := collect(t, e, int64(i), true); len(got) != n+1-i || got[len(got)-1].Type != api.EventResult {
				t.Errorf("reader %d got %d events", i, len(got))
			}
		})
	}
	for i := range n {
		appendText(t, e, fmt.Sprint(i))
	}
	if err := e.Finish(api.Result{}); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
}

func TestFollowEndsWithItsContext(t *testing.T) {
	e := create(t, open(t, t.TempDir()), "a")
	appendText(t, e, "one")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	for _, err := range e.Events(ctx, 0, true) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
		n++
		cancel()
	}
	if n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestRecovery opens what a process that died has left, at every point of its
// life.
func TestRecovery(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	write := func(id, name, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, id, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	finished := create(t, s, "finished")
	if err := finished.Finish(api.Result{StopReason: "success"}); err != nil {
		t.Fatal(err)
	}
	appendText(t, create(t, s, "midway"), "one")
	appendText(t, create(t, s, "torn"), "one")
	write("torn", eventsFile, `{"seq":2,"time`)
	create(t, s, "empty")
	create(t, s, "said")
	write("said", eventsFile, `{"seq":1,"type":"result","result":{"stopReason":"success"}}`+"\n")
	write("said", resultFile+".tmp", `{"stop`)
	create(t, s, "bare")
	if err := os.RemoveAll(filepath.Join(dir, "bare")); err != nil { // as when the machine lost power
		t.Fatal(err)
	}
	create(t, s, "untold")
	if err := os.WriteFile(filepath.Join(dir, "untold", resultFile), []byte(`{"stopReason":"success"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	write("untold", eventsFile, `{"seq":1,"type":"result","result":{"stopReason":"success"}}`+"\n")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "damaged"), 0o700), os.WriteFile(filepath.Join(dir, "damaged", metaFile), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "foreign"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Close()

	for range 2 { // the second time everything is in order already
		s = open(t, dir)
		for id, want := range map[string]struct {
			stop   string
			events int
		}{
			"finished": {"success", 1}, "midway": {"lost", 2}, "torn": {"lost", 2}, "empty": {"lost", 1}, "said": {"success", 1},
			"bare": {"lost", 1}, "untold": {"success", 1},
		} {
			e := find(t, s, id)
			if e == nil {
				t.Errorf("%s is gone", id)
				continue
			}
			res, err := e.Result()
			if err != nil || res.StopReason != want.stop || !e.Finished() {
				t.Errorf("%s: %+v, %v", id, res, err)
			}
			if got := collect(t, e, 0, true); len(got) != want.events || got[len(got)-1].Result == nil {
				t.Errorf("%s: %d events", id, len(got))
			}
		}
		if page, more, err := s.List(Listing{Limit: 100}); len(page) != 7 || more || err != nil || len(s.live) != 0 {
			t.Errorf("%d executions, %d in memory, %v", len(page), len(s.live), err)
		}
	}
	for _, name := range []string{"damaged", "foreign", "file"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s was touched: %v", name, err)
		}
	}
}

// TestFullDisk has every write fail from some moment on.
func TestFullDisk(t *testing.T) {
	e := create(t, open(t, t.TempDir()), "a")
	appendText(t, e, "one")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	e.file.Close()
	e.file = full
	if err := e.Append(api.Event{Type: api.EventText}); err == nil {
		t.Error("an event was written to a full disk")
	}
	if err := e.Finish(api.Result{Output: "done"}); err == nil {
		t.Error("a result was written to a full disk")
	}
	if res, err := e.Result(); err != nil || res.Output != "done" {
		t.Errorf("%+v, %v", res, err)
	}
	got := collect(t, e, 0, true)
	if len(got) != 2 || got[1].Result == nil || got[1].Result.Output != "done" {
		t.Errorf("events = %+v", got)
	}
}

// TestOldRecord opens the record of an executor that wrote the request into it.
func TestOldRecord(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		requestFile: `{"executionId":"a","accepted":"2026-11-21T00:46:46Z","request":{"prompt":"p","config":{"model":"acme/large"},"opts":{"taskId":"t"}},"agent":"pi","policy":"strict","idempotencyKey":"k","bodyDigest":"d"}`,
		eventsFile:  `{"seq":1,"type":"result","result":{"stopReason":"success"}}` + "\n",
		resultFile:  `{"stopReason":"success"}`,
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a"), 0o700), os.WriteFile(filepath.Join(dir, "a", name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	want := Meta{ID: "a", Accepted: time.Date(2026, 11, 21, 0, 46, 46, 0, time.UTC), TaskID: "t", Model: "acme/large", Agent: "pi", Policy: "strict", Key: "k", Body: "d", Backend: "docker"}
	for range 2 { // the second time from a file of its own
		s := open(t, dir)
		if e := find(t, s, "a"); e == nil || e.Meta != want || !e.Finished() {
			t.Errorf("%+v, want %+v", e, want)
		}
		s.Close()
		if err := os.Truncate(filepath.Join(dir, "a", requestFile), 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	now := time.Now()
	for i, age := range []time.Duration{5 * time.Hour, 4 * time.Hour, 3 * time.Hour, 2 * time.Hour, time.Hour} {
		e, err := s.Create(Meta{ID: fmt.Sprint("e", i), Accepted: now.Add(-age)}, []byte("{}"), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue // still under way
		}
		if err := e.Finish(api.Result{}); err != nil {
			t.Fatal(err)
		}
	}
	// Another tenant's many take nobody's place but each other's.
	for i := range 3 {
		record(t, s, Meta{ID: fmt.Sprint("o", i), Tenant: "other", Accepted: now}, api.Result{})
	}
	if gone, err := s.Sweep(2, now.Add(-10*time.Hour)); err != nil || gone != 3 {
		t.Errorf("%d are gone, %v", gone, err)
	}
	if gone, err := s.Sweep(2, now.Add(-90*time.Minute)); err != nil || gone != 1 {
		t.Errorf("%d are gone by their time, %v", gone, err)
	}
	for id, want := range map[string]bool{"e0": true, "e1": false, "e2": false, "e3": false, "e4": true, "o0": false, "o1": true, "o2": true} {
		e := find(t, s, id)
		if _, err := os.Stat(filepath.Join(dir, id)); (e != nil) != want || (err == nil) != want {
			t.Errorf("%s: kept %t, %v", id, e != nil, err)
		}
	}
}

func TestMode(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "executions") // made by Open
	e := create(t, open(t, dir), "a")
	if err := e.Finish(api.Result{}); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkAppend(b *testing.B) {
	e := create(b, open(b, b.TempDir()), "a")
	text := string(bytes.Repeat([]byte("x"), 200))
	b.ReportAllocs()
	for b.Loop() {
		appendText(b, e, text)
	}
}
