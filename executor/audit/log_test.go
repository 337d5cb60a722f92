package audit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is a record of the execution number i.
func sample(i int) Record {
	digest := strings.Repeat("0123456789abcdef", 4)
	return Record{
		Execution: fmt.Sprintf("run-%d", i),
		Command:   Command{Argv: []string{"sh", "-c", "echo <hello> & \u2028 日本"}, Directory: "/workspace", Environment: []string{"PATH"}},
		Network:   Network{Policy: "strict", Receipt: json.RawMessage(`{"hosts":[]}`)},
		Artifacts: []Artifact{{Name: "hello.py", Size: 1 << 40, SHA256: digest}, {Name: "big", Skipped: "too large"}},
		Commit:    digest[:40],
		Outcome:   Outcome{State: StateFinished, Success: true, Accepted: time.Date(2026, 11, 22, 17, 0, i, 0, time.UTC)},
		Events:    Events{Log: "events.ndjson", Count: 3, SHA256: digest, Root: digest},
	}
}

func open(t testing.TB, dir string) *Log {
	t.Helper()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// appendAll appends the records from, from+1 and so on, without to.
func appendAll(t testing.TB, l *Log, from, to int) (places []Place) {
	t.Helper()
	for i := from; i < to; i++ {
		p, err := l.Append(sample(i))
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, p)
	}
	return places
}

func exportOf(t testing.TB, dir string, want func(Record) bool) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Export(&b, dir, want); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// runs verifies the log in dir and returns its executions in order.
func runs(t testing.TB, dir string, trust Trust) (Report, []string) {
	t.Helper()
	var names []string
	report, err := Verify(bytes.NewReader(exportOf(t, dir, nil)), trust, func(e Entry) error {
		if r, err := e.Run(); err == nil {
			names = append(names, r.Execution)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return report, names
}

func numbered(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("run-%d", i))
	}
	return names
}

// TestLog appends over the ends of files and tiles, opening the log anew now and then.
func TestLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l := open(t, dir)
	var places []Place
	for at, next := range []int{0, 1, 2, 255, 256, 511, 600} {
		if at%2 == 1 { // as a process that was killed leaves it
			l = open(t, dir)
		}
		places = append(places, appendAll(t, l, len(places), next)...)
	}
	trust := Trust{Keys: []PublicKey{l.Key()}, Places: places}
	report, names := runs(t, dir, trust)
	if !slices.Equal(names, numbered(600)) || report.Size != 601 || report.Records != 601 || !slices.Equal(report.Keys, []string{l.Key().Fingerprint()}) {
		t.Errorf("%+v with %d runs", report, len(names))
	}
	part := exportOf(t, dir, func(r Record) bool { return r.Execution == "run-300" || r.Execution == "run-599" })
	trust.Places = []Place{places[300], places[599]}
	report, err := Verify(bytes.NewReader(part), trust, nil)
	if err != nil || report.Size != 601 || report.Records != 3 {
		t.Errorf("of two runs: %+v, %v", report, err)
	}
	trust.Places = places[301:302]
	if _, err := Verify(bytes.NewReader(part), trust, nil); err == nil {
		t.Error("a record that is not there was found")
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if info, _ := d.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDamagedTiles makes the tiles again, and never the records.
func TestDamagedTiles(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, dir string) error{
		"gone":    func(_ *testing.T, dir string) error { return os.RemoveAll(filepath.Join(dir, "tile")) },
		"cut":     func(_ *testing.T, dir string) error { return os.Truncate(filepath.Join(dir, tilePath(0, 1)), 40) },
		"changed": func(t *testing.T, dir string) error { return flip(t, filepath.Join(dir, tilePath(0, 1)), 3) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir)
			appendAll(t, l, 0, 300)
			if err := damage(t, dir); err != nil {
				t.Fatal(err)
			}
			l = open(t, dir)
			appendAll(t, l, 300, 302)
			if _, names := runs(t, dir, Trust{Keys: []PublicKey{l.Key()}}); !slices.Equal(names, numbered(302)) {
				t.Errorf("%d runs", len(names))
			}
			if data, err := os.ReadFile(filepath.Join(dir, tilePath(1, 0))); err != nil || len(data) != 32 {
				t.Errorf("the upper tile has %d bytes, %v", len(data), err)
			}
		})
	}
}

// flip changes a byte of a file.
func flip(t testing.TB, path string, at int64) error {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	data[at] ^= 1
	return os.WriteFile(path, data, 0o600)
}

// TestDamagedRecords refuses to go on with a log that is not what it was.
//
// probe: F11
// oracle: the log as it was opens before and after
func TestDamagedRecords(t *testing.T) {
	dir := t.TempDir()
	appendAll(t, open(t, dir), 0, 300)
	file := filepath.Join(dir, recordsFile(299))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	last := len(lines) - 2
	// What the tiles do not show when the log is opened, its export does.
	later := []string{"a record taken out", "two records swapped"}
	for name, damaged := range map[string][]byte{
		"the envelope of the last record": bytes.Replace(data, lines[last], bytes.Replace(lines[last], []byte(`"payload":"ey`), []byte(`"payload":"eX`), 1), 1),
		"its checkpoint":                  bytes.Replace(data, lines[last], bytes.Replace(lines[last], []byte(`\n301\n`), []byte(`\n300\n`), 1), 1),
		"its index":                       bytes.Replace(data, lines[last], bytes.Replace(lines[last], []byte(`"index":300`), []byte(`"index":299`), 1), 1),
		"a record taken out":              slices.Concat(bytes.Join(lines[:5], nil), bytes.Join(lines[6:], nil)),
		"two records swapped":             slices.Concat(lines[1], lines[0], bytes.Join(lines[2:], nil)),
	} {
		if bytes.Equal(damaged, data) {
			t.Fatalf("%s: nothing is changed", name)
		}
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		opened, err := Open(dir)
		if err == nil {
			opened.Close()
			if !slices.Contains(later, name) {
				t.Errorf("%s: the log goes on", name)
			}
			err = Export(io.Discard, dir, nil)
		}
		if err == nil {
			t.Errorf("%s: it is exported", name)
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		open(t, dir)
	}
}

// TestTornWrite cuts the last line, and puts zeros in the place of blocks,
// as a power cut does. The record was not acknowledged then; all before it are there.
func TestTornWrite(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	appendAll(t, l, 0, 2)
	file := filepath.Join(dir, recordsFile(0))
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, 2, 3)
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	written := after[len(before):]
	left := [][]byte{written[:len(written)-1], make([]byte, 4096)}
	for n := 0; n < len(written); n += 40 {
		zeros := bytes.Clone(written)
		clear(zeros[n:min(n+512, len(zeros)-1)])
		left = append(left, written[:n], zeros)
	}
	for _, part := range left {
		if err := os.WriteFile(file, slices.Concat(before, part), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir)
		if err != nil {
			t.Fatalf("left %q: %v", part, err)
		}
		appendAll(t, l, 2, 3)
		if _, names := runs(t, dir, Trust{Keys: []PublicKey{l.Key()}}); !slices.Equal(names, numbered(3)) {
			t.Errorf("left %q: %v", part, names)
		}
		l.Close()
	}
}

// TestSpoiltMeanwhile has a file change under an open log: nothing is appended, not at the
// second attempt either, until it is what it was.
func TestSpoiltMeanwhile(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	appendAll(t, l, 0, 1)
	file := filepath.Join(dir, recordsFile(0))
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(bytes.Clone(whole), "no record\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if p, err := l.Append(sample(9)); err == nil {
			t.Errorf("a record was appended to what is no log, at %+v", p)
		}
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	appendAll(t, l, 1, 2)
	if _, names := runs(t, dir, Trust{Keys: []PublicKey{l.Key()}}); !slices.Equal(names, numbered(2)) {
		t.Errorf("%v", names)
	}
}

// TestFullDisk has one write fail; the record is not in the log, and the next is.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	appendAll(t, l, 0, 1)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.file.Close()
	l.file, l.size = full, 0 // as long as /dev/full is
	if p, err := l.Append(sample(9)); err == nil {
		t.Errorf("a record was written to a full disk, to %+v", p)
	}
	appendAll(t, l, 1, 2)
	if _, names := runs(t, dir, Trust{Keys: []PublicKey{l.Key()}}); !slices.Equal(names, numbered(2)) {
		t.Errorf("%v", names)
	}
}

// TestTwoProcesses has two logs on one directory, and a key that one of them changes.
func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	first := a.Key()
	for i := range 600 {
		l := a
		if i%3 == 0 {
			l = b
		}
		appendAll(t, l, i, i+1)
		if i == 255 {
			if _, err := b.Rotate(); err != nil {
				t.Fatal(err)
			}
		}
	}
	report, names := runs(t, dir, Trust{Keys: []PublicKey{first}})
	if !slices.Equal(names, numbered(600)) || !slices.Equal(report.Keys, []string{first.Fingerprint(), a.Key().Fingerprint()}) || !a.Key().equal(b.Key()) {
		t.Errorf("%+v with %d runs", report, len(names))
	}
}

// appenderDir is the variable that makes the test's binary a process that appends there.
const appenderDir = "SALLYPORT_TEST_APPEND_TO"

func TestMain(m *testing.M) {
	if dir := os.Getenv(appenderDir); dir != "" {
		appendForever(dir)
	}
	os.Exit(m.Run())
}

// appendForever appends records, rotates the key now and then, and says what is done.
func appendForever(dir string) {
	l, err := Open(dir)
	for i := 0; err == nil; i++ {
		var p Place
		if i%7 == 6 {
			_, err = l.Rotate()
		} else if p, err = l.Append(sample(i)); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(p)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// TestKill kills a process that appends and rotates, again and again: whatever it has
// said to be in the log is there once, and the log goes on.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir).Key()
	var places []Place
	for range 60 {
		places = append(places, untilKilled(t, dir)...)
		l, err := Open(dir)
		if err != nil {
			t.Fatalf("after %d records: %v", len(places), err)
		}
		p, err := l.Append(sample(-1))
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, p)
		l.Close()
	}
	report, names := runs(t, dir, Trust{Keys: []PublicKey{first}, Places: places})
	// Of each process one record may be there of which it could no longer tell.
	if len(names) < len(places) || len(names) > len(places)+60 || len(report.Keys) < 2 || len(places) < 300 {
		t.Errorf("%d records, %d of them told, with %d keys", len(names), len(places), len(report.Keys))
	}
	if _, err := os.Stat(filepath.Join(dir, nextFile)); err == nil {
		t.Error("a key that is not in force is left")
	}
}

// untilKilled starts a process that appends, kills it, and returns what it said.
func untilKilled(t *testing.T, dir string) (places []Place) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), appenderDir+"="+dir)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines, after := bufio.NewScanner(out), rand.IntN(20)
	for lines.Scan() {
		var p Place
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		places = append(places, p)
		if len(places) == after+1 {
			time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { cmd.Process.Kill() })
		}
	}
	if cmd.Wait(); cmd.ProcessState.Success() || cmd.ProcessState.ExitCode() == 1 {
		t.Fatalf("it ended by itself: %v", cmd.ProcessState)
	}
	return places
}
