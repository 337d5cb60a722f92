package decisionlog

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"

	"golang.org/x/sys/unix"
)

func openFile(t *testing.T, path string, limits FileSize) *File {
	t.Helper()
	s, err := OpenFile(path, limits, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readFile reads the records of one file; a line that is not one fails the test.
func readFile(t *testing.T, path string) []account.Record {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var records []account.Record
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r account.Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatalf("%s: %v in %q", path, err, lines.Text())
		}
		records = append(records, r)
	}
	return records
}

func hostRecord(i int) account.Record {
	return account.Record{Time: time.Now(), Kind: account.KindTLS, Host: fmt.Sprintf("h%d.example", i),
		Verdict: firewall.Allow, Reason: firewall.ReasonListed}
}

// ready waits until s has found out by itself that it can write again.
func ready(t *testing.T, s *File) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !s.Ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not ready with room again")
		}
	}
}

func fileRotates(t *testing.T, atOnce int) {
	path := filepath.Join(t.TempDir(), "decisions.ndjson")
	limits := FileSize{Bytes: 4096, Files: 3}
	const n = 200
	s := openFile(t, path, limits)
	var batch []account.Record
	for i := range n {
		if i == n/2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = openFile(t, path, limits)
		}
		if batch = append(batch, hostRecord(i)); len(batch) == atOnce {
			s.Add(batch...)
			batch = nil
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var all []account.Record
	for _, name := range []string{path + ".2", path + ".1", path} {
		info, err := os.Stat(name)
		if err != nil || info.Size() > limits.Bytes || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
		all = append(all, readFile(t, name)...)
	}
	for i, r := range all {
		if want := fmt.Sprintf("h%d.example", n-len(all)+i); r.Host != want {
			t.Fatalf("record %d is of %s, want %s", i, r.Host, want)
		}
	}
	if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 3 || len(all) < 20 {
		t.Errorf("%d files, %d records", len(entries), len(all))
	}
}

// The files are bounded in size and number, and what they hold is the latest,
// without gaps. A file that is opened again goes on.
func TestFileRotates(t *testing.T) {
	for _, atOnce := range []int{1, 100} {
		t.Run(fmt.Sprint(atOnce, " at once"), func(t *testing.T) { fileRotates(t, atOnce) })
	}
}

func TestOpenFileRefuses(t *testing.T) {
	dir := t.TempDir()
	for path, limits := range map[string]FileSize{
		dir:                           {Bytes: 4096, Files: 2},
		filepath.Join(dir, "no", "x"): {Bytes: 4096, Files: 2},
		filepath.Join(dir, "a"):       {Bytes: 100, Files: 2},
		filepath.Join(dir, "b"):       {Bytes: 4096},
	} {
		if _, err := OpenFile(path, limits, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%s with %+v was opened", path, limits)
		}
	}
}

// A disk that is full in the middle of a line: the half is taken back, and the
// line is written when there is room.
//
// probe: L6
// oracle: the file, read line by line
func TestFileHalfLine(t *testing.T) {
	signal.Ignore(unix.SIGXFSZ)
	defer signal.Reset(unix.SIGXFSZ)
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	set := func(l unix.Rlimit) {
		t.Helper()
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "decisions.ndjson")
	s := openFile(t, path, FileSize{Bytes: 1 << 20, Files: 1})
	defer set(was)
	set(unix.Rlimit{Cur: 5000, Max: was.Max})
	n := 0
	for ; s.Ready() && n < 100; n++ {
		s.Add(hostRecord(n))
	}
	if n == 100 {
		t.Fatal("the limit was not reached")
	}
	s.Add(hostRecord(n)) // one that was decided before
	if got := len(readFile(t, path)); got != n-1 {
		t.Errorf("%d whole lines after %d", got, n)
	}
	set(was)
	ready(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for i, r := range readFile(t, path) {
		if r.Host != fmt.Sprintf("h%d.example", i) || i > n {
			t.Errorf("record %d is of %s", i, r.Host)
		}
	}
}

// What waits is bounded, denials do not take the room of allowances, and a file
// that ends with some left says so.
func TestFilePendingIsBounded(t *testing.T) {
	link := filepath.Join(t.TempDir(), "decisions.ndjson")
	if err := os.Symlink("/dev/full", link); err != nil {
		t.Fatal(err)
	}
	s := openFile(t, link, FileSize{Bytes: 4096, Files: 2})
	denied := account.Record{Verdict: firewall.Deny, Reason: firewall.ReasonBadName}
	pending := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.count
	}
	for range maxPending {
		s.Add(denied)
	}
	if n := pending(); n != maxPending/2 {
		t.Errorf("%d denials wait", n)
	}
	for i := range maxPending {
		s.Add(hostRecord(i))
	}
	s.Add(account.Record{Verdict: firewall.Deny, Reason: firewall.ReasonLog})
	if pending() != maxPending || s.lost != maxPending || s.refused != 1 {
		t.Errorf("%d wait, %d lost, %d refused", s.count, s.lost, s.refused)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), fmt.Sprint(2*maxPending)) {
		t.Errorf("closing: %v", err)
	}
}
