package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sallyport/executor/api"
)

// record makes the record of an execution that has ended.
func record(t testing.TB, s *Store, m Meta, res api.Result) *Entry {
	t.Helper()
	e, err := s.Create(m, []byte("{}"), nil, nil)
	if err == nil {
		err = e.Finish(res)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// listed are the identifiers of a tenant's executions, as the list has them.
func listed(t testing.TB, s *Store, l Listing) []string {
	t.Helper()
	if l.Limit == 0 {
		l.Limit = 100
	}
	page, _, err := s.List(l)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, x := range page {
		ids = append(ids, x.ID)
	}
	return ids
}

// TestRowsAreMadeAgain opens directories without a database, as those of an older executor
// or of a backup, and a database without some of its directories.
func TestRowsAreMadeAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	now := time.Now()
	failed := api.Result{StopReason: "error_exit_3", DurationMS: 1000, CostUSD: 0.5, Error: &api.Error{Code: api.CodeCommandFailed}}
	record(t, s, Meta{ID: "a", Tenant: "acme", TaskID: "build", Accepted: now, Key: "k", Body: "d"}, failed)
	record(t, s, Meta{ID: "b", Accepted: now.Add(-25 * time.Hour), Key: "k"}, api.Result{Success: true})
	record(t, s, Meta{ID: "c", Accepted: now}, api.Result{Success: true})
	create(t, s, "d")
	used, err := s.Used("acme")
	if err != nil || used == 0 {
		t.Fatalf("%d bytes, %v", used, err)
	}
	s.Close()
	if err := errors.Join(os.Remove(dir+".db"), os.Remove(filepath.Join(dir, "c", resultFile)), os.Mkdir(filepath.Join(dir, "c", resultFile), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 { // made again, and as they were then
		s = open(t, dir)
		if ids := listed(t, s, Listing{}); !slices.Equal(ids, []string{"d", "c", "b"}) {
			t.Errorf("listed are %v", ids)
		}
		page, _, err := s.List(Listing{Tenant: "acme", TaskID: "build", State: api.StateFinished, Limit: 1})
		if err != nil || len(page) != 1 || page[0].Outcome.Code != api.CodeCommandFailed || page[0].Outcome.StopReason != "error_exit_3" {
			t.Errorf("%+v, %v", page, err)
		}
		if ids := listed(t, s, Listing{AllTenants: true, Before: "d"}); !slices.Equal(ids, []string{"c", "b", "a"}) {
			t.Errorf("of all tenants listed are %v", ids)
		}
		page, _, err = s.List(Listing{Before: "d", Limit: 1})
		if err != nil || page[0].Outcome.Code != api.CodeLost {
			t.Errorf("the one whose result cannot be read: %+v, %v", page, err)
		}
		if id, body, err := s.Key("acme", "k"); id != "a" || body != "d" || err != nil {
			t.Errorf("the key is of %q, %q, %v", id, body, err)
		}
		if id, _, err := s.Key("", "k"); id != "" || err != nil {
			t.Errorf("a key that was used the day before yesterday is of %q, %v", id, err)
		}
		if n, err := s.Used("acme"); n != used || err != nil {
			t.Errorf("%d bytes, want %d, %v", n, used, err)
		}
		if usd, err := s.Spent("acme", now); usd != 0.5 || err != nil {
			t.Errorf("%v USD, %v", usd, err)
		}
		s.Close()
	}
	if err := os.RemoveAll(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if ids := listed(t, s, Listing{}); !slices.Equal(ids, []string{"d", "c"}) {
		t.Errorf("without the directory listed are %v", ids)
	}
}

// TestKnownExecutionsStayClosed starts on executions whose files nobody can read.
func TestKnownExecutionsStayClosed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 3 {
		record(t, s, Meta{ID: fmt.Sprint(i), Accepted: time.Now(), TaskID: "t"}, api.Result{Success: true})
	}
	s.Close()
	for i := range 3 {
		left, err := os.ReadDir(filepath.Join(dir, fmt.Sprint(i)))
		for _, file := range left {
			err = errors.Join(err, os.Remove(filepath.Join(dir, fmt.Sprint(i), file.Name())))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, dir)
	page, more, err := s.List(Listing{TaskID: "t", Limit: 2})
	if err != nil || !more || len(page) != 2 || !page[0].Outcome.Success || !page[1].Outcome.Success {
		t.Errorf("%+v, %v, %v", page, more, err)
	}
}

// TestKeysOutliveExecutions has executions swept; what their keys stand for and what they
// have cost is known for longer, but not for ever.
func TestKeysOutliveExecutions(t *testing.T) {
	s := open(t, t.TempDir())
	now := time.Now()
	record(t, s, Meta{ID: "a", Tenant: "acme", Accepted: now, Key: "k", Body: "d"}, api.Result{CostUSD: 2})
	if n, err := s.Sweep(0, now.Add(time.Hour)); n != 1 || err != nil {
		t.Fatalf("%d swept, %v", n, err)
	}
	if e := find(t, s, "a"); e != nil {
		t.Errorf("there is still %+v", e.Meta)
	}
	if id, body, err := s.Key("acme", "k"); id != "a" || body != "d" || err != nil {
		t.Errorf("the key is of %q, %q, %v", id, body, err)
	}
	if id, _, err := s.Key("other", "k"); id != "" || err != nil {
		t.Errorf("another tenant's key is of %q, %v", id, err)
	}
	if _, err := s.Create(Meta{ID: "b", Tenant: "acme", Accepted: now, Key: "k"}, nil, nil, nil); err == nil {
		t.Error("a key that is in use was given to another execution")
	}
	if e := find(t, s, "b"); e != nil || len(listed(t, s, Listing{Tenant: "acme"})) != 0 {
		t.Error("the execution that was refused is there")
	}
	spent := func(since time.Time) float64 {
		t.Helper()
		usd, err := s.Spent("acme", since)
		if err != nil {
			t.Fatal(err)
		}
		return usd
	}
	if before, after := spent(now.Add(-time.Hour)), spent(now.Add(time.Hour)); before != 2 || after != 0 {
		t.Errorf("spent since before %v, since after %v", before, after)
	}
	if n, err := s.Used("acme"); n != 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	record(t, s, Meta{ID: "c", Tenant: "acme", Accepted: now.Add(-2 * keyLife), Key: "old"}, api.Result{})
	record(t, s, Meta{ID: "e", Tenant: "acme", Accepted: now, Key: "old"}, api.Result{})
	if err := s.rows.expire(now.Add(spendingLife + time.Minute)); err != nil {
		t.Fatal(err)
	}
	if id, _, err := s.Key("acme", "k"); id != "" || err != nil || spent(time.Time{}.Add(1)) != 0 {
		t.Errorf("a month later the key is of %q, %v", id, err)
	}
}

// TestSweepsAtOnce has more executions end at once, where each makes room for the next, than
// the database has connections.
func TestSweepsAtOnce(t *testing.T) {
	s := open(t, t.TempDir())
	for i := range 40 {
		record(t, s, Meta{ID: fmt.Sprint("e", i), Tenant: fmt.Sprint("t", i%4), Accepted: time.Now()}, api.Result{})
	}
	var sweeps sync.WaitGroup
	for range 16 {
		sweeps.Go(func() {
			for range 10 {
				if _, err := s.Sweep(1, time.Time{}.AddDate(1970, 0, 0)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	sweeps.Wait()
	if ids := listed(t, s, Listing{AllTenants: true}); len(ids) != 4 {
		t.Errorf("left are %v", ids)
	}
}
