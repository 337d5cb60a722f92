// Command store measures the record of executions: opening one of many beside one of few,
// its memory, lists, and accepting and ending an execution beside the files alone. It wants
// nothing but a disk. See bench/README.md.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"sallyport/bench/report"
	"sallyport/executor/api"
	"sallyport/executor/state"
	"sallyport/executor/store"
)

// limit bounds a whole measurement; it takes about a minute.
const limit = 8 * time.Minute

const (
	about = "The record of executions."
	few   = 100
)

func main() { os.Exit(report.Main(limit, run)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 3 && args[0] == "use" { // a process of its own, whose memory is told
		return use(args[1], args[2] == "accept", stdout)
	}
	flags := report.NewFlags("bench store", stderr, 5)
	many := flags.Int("executions", 100_000, "`number` of executions that are stored")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *many <= few {
		return fmt.Errorf("-executions must be above %d", few)
	}
	// Beside the results, for /tmp may be memory, where fsync does nothing.
	if err := os.MkdirAll(filepath.Dir(flags.Out), 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(flags.Out), "store-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	first := map[int]float64{}
	for _, n := range []int{few, *many} {
		fmt.Fprintf(stderr, "bench: storing %d executions\n", n)
		if first[n], err = fill(ctx, filepath.Join(dir, fmt.Sprint(n)), n); err != nil {
			return fmt.Errorf("store %d executions: %w", n, err)
		}
	}
	at := map[int]*figures{few: {}, *many: {}}
	for i := range flags.Rounds {
		for n, of := range at {
			if err := of.take(ctx, filepath.Join(dir, fmt.Sprint(n)), i == flags.Rounds-1); err != nil {
				return err
			}
		}
	}
	return flags.Finish(stdout, about, "store: ", table(*many, at[*many], at[few], first[*many]))
}

// table puts the figures of many executions beside those of few.
func table(n int, many, less *figures, taken float64) []report.Figure {
	peer := fmt.Sprint(few, " executions")
	quantile := func(s report.Samples, q float64) report.Samples { return report.Samples{s.Quantile(q)} }
	of := fmt.Sprintf(" of %d", n)
	var all []report.Figure
	all = append(all,
		report.Alone("take over directories"+of, "ms", report.Samples{taken}),
		report.Beside("open the record"+of, "ms", many.Open, peer, less.Open),
		report.Beside("memory with a record"+of+", at most", "MiB", many.Peak, peer, less.Peak),
		report.Beside("... after collection", "MiB", many.Rest, peer, less.Rest))
	for _, f := range []struct {
		name       string
		ours, peer report.Samples
		beside     string
	}{
		{"a page of 100" + of, many.List, less.List, peer},
		{"a page of a task" + of, many.Task, less.Task, peer},
		{"look up a key" + of, many.Key, less.Key, peer},
		{"sum of a tenant's bytes" + of, many.Used, less.Used, peer},
		{"accept an execution beside" + of, many.Accept, many.Files, "its files alone"},
		{"end an execution beside" + of, many.End, less.End, peer},
	} {
		all = append(all, report.Beside(f.name, "ms", f.ours, f.beside, f.peer),
			report.Beside("... its p99", "ms", quantile(f.ours, .99), f.beside, quantile(f.peer, .99)))
	}
	return all
}

func meta(at time.Time) store.Meta {
	id := strings.ToLower(ulid.MustNew(ulid.Timestamp(at), rand.Reader).String())
	return store.Meta{ID: id, Accepted: at, TaskID: fmt.Sprint("task-", at.UnixNano()%1000), Model: "anthropic/claude-sonnet-4-6", Agent: "pi", Policy: "strict",
		Key: "key-" + id, Body: strings.Repeat("0123456789abcdef", 4), Backend: "docker"}
}

// fill makes directories of n executions that have ended, and has a store take them over. It
// returns how long that took, in ms.
func fill(ctx context.Context, dir string, n int) (float64, error) {
	result, err := json.Marshal(api.Result{Success: true, Output: strings.Repeat("o", 1000), StopReason: "success", CostUSD: 0.01})
	if err != nil {
		return 0, err
	}
	records, shared := filepath.Join(dir, "executions"), ""
	if err := os.MkdirAll(records, 0o700); err != nil {
		return 0, err
	}
	began := time.Now().Add(-time.Duration(n) * time.Millisecond)
	for i := range n {
		m := meta(began.Add(time.Duration(i) * time.Millisecond))
		text, err := json.Marshal(m)
		to := filepath.Join(records, m.ID)
		if err = errors.Join(err, ctx.Err(), os.Mkdir(to, 0o700), os.WriteFile(filepath.Join(to, "meta.json"), text, 0o600)); err != nil {
			return 0, err
		}
		if i%10_000 == 0 { // as many links as every file system lets a file have
			shared = filepath.Join(to, "result.json")
			err = os.WriteFile(shared, result, 0o600)
		} else {
			err = os.Link(shared, filepath.Join(to, "result.json"))
		}
		if err != nil {
			return 0, err
		}
	}
	start := time.Now()
	_, end, err := open(dir)
	if err != nil {
		return 0, err
	}
	return ms(start), end()
}

func ms(began time.Time) float64 { return float64(time.Since(began).Microseconds()) / 1000 }

func open(dir string) (*store.Store, func() error, error) {
	db, err := state.Open(context.Background(), filepath.Join(dir, "state.db"))
	if err != nil {
		return nil, nil, err
	}
	st, err := store.Open(db, filepath.Join(dir, "executions"), slog.New(slog.DiscardHandler), nil)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return st, func() error { return errors.Join(st.Close(), db.Close()) }, nil
}

// figures are what a process that uses a store measures; in ms and MiB.
type figures struct {
	Open, Peak, Rest, List, Task, Key, Used, Accept, Files, End report.Samples
}

// take has a process use a store.
func (f *figures) take(ctx context.Context, dir string, accept bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	what := "read"
	if accept {
		what = "accept" // last, for then there are more
	}
	cmd := exec.CommandContext(ctx, self, "use", dir, what)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("use %s: %w", dir, err)
	}
	var g figures
	if err := json.Unmarshal(out, &g); err != nil {
		return fmt.Errorf("use %s: %w", dir, err)
	}
	for to, from := range map[*report.Samples]report.Samples{
		&f.Open: g.Open, &f.Peak: g.Peak, &f.Rest: g.Rest, &f.List: g.List, &f.Task: g.Task, &f.Key: g.Key, &f.Used: g.Used,
		&f.Accept: g.Accept, &f.Files: g.Files, &f.End: g.End,
	} {
		*to = append(*to, from...)
	}
	return nil
}

// use is the process that uses a store.
func use(dir string, accept bool, stdout io.Writer) error {
	var f figures
	began := time.Now()
	st, end, err := open(dir)
	if err != nil {
		return err
	}
	f.Open = report.Samples{ms(began)}
	if f.Peak, err = memory("VmHWM:"); err != nil {
		return err
	}
	runtime.GC()
	if f.Rest, err = memory("VmRSS:"); err != nil {
		return err
	}
	if err := f.read(st); err != nil {
		return err
	}
	if accept {
		if err := f.accept(st, dir); err != nil {
			return err
		}
	}
	if err := end(); err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(f)
}

// turns are how often a process does each thing.
const turns = 200

func timed(samples *report.Samples, do func() error) error {
	began := time.Now()
	err := do()
	*samples = append(*samples, ms(began))
	return err
}

func (f *figures) read(st *store.Store) error {
	before := ""
	for range turns {
		err := timed(&f.List, func() error {
			page, _, err := st.List(store.Listing{Before: before, Limit: 100})
			if before = ""; len(page) == 100 {
				before = page[99].ID
			}
			return err
		})
		err = errors.Join(err, timed(&f.Task, func() error {
			_, _, err := st.List(store.Listing{TaskID: "task-500", State: api.StateFinished, Limit: 20})
			return err
		}), timed(&f.Key, func() error {
			_, _, err := st.Key("", "key-of-nobody")
			return err
		}), timed(&f.Used, func() error {
			_, err := st.Used("")
			return err
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *figures) accept(st *store.Store, dir string) error {
	request := bytes.Repeat([]byte(" "), 2000)
	alone := filepath.Join(dir, "alone")
	if err := os.Mkdir(alone, 0o700); err != nil {
		return err
	}
	for range turns {
		m := meta(time.Now())
		var e *store.Entry
		err := timed(&f.Accept, func() (err error) {
			e, err = st.Create(m, request, nil, nil)
			return err
		})
		if err == nil {
			err = timed(&f.End, func() error { return e.Finish(api.Result{Success: true}) })
		}
		err = errors.Join(err, timed(&f.Files, func() error { return files(filepath.Join(alone, m.ID), m, request) }))
		if err != nil {
			return err
		}
	}
	return nil
}

// files writes what a store writes of a new execution, without its row.
func files(dir string, m store.Meta, request []byte) error {
	text, err := json.Marshal(m)
	if err = errors.Join(err, os.Mkdir(dir, 0o700)); err != nil {
		return err
	}
	for name, data := range map[string][]byte{"request.json": request, "meta.json": text} {
		to := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(to+".tmp", data, 0o600), os.Rename(to+".tmp", to)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "events.ndjson"), nil, 0o600)
}

// memory is a field of /proc/self/status, in MiB.
func memory(field string) (report.Samples, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, err
	}
	var kib float64
	_, rest, _ := strings.Cut(string(status), field)
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return nil, err
	}
	return report.Samples{kib / 1024}, nil
}
