package approval_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/approval"
	"sallyport/executor/caller"
	"sallyport/executor/state"
)

func keeper(t testing.TB) (*approval.Keeper, *[]api.ApprovalEvent) {
	t.Helper()
	db, err := state.Open(context.Background(), filepath.Join(t.TempDir(), "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var signed []api.ApprovalEvent
	return &approval.Keeper{DB: db, Now: time.Now, Sign: func(ev api.ApprovalEvent) error {
		signed = append(signed, ev)
		return nil
	}}, &signed
}

func asIs(text []byte) ([]byte, error) { return text, nil }

func subject(t testing.TB, definition string) approval.Subject {
	t.Helper()
	s, err := approval.NewSubject("acme", api.KindTask, "t", map[string]string{"d": definition})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func require(t testing.TB, k *approval.Keeper, s approval.Subject) api.Approval {
	t.Helper()
	found, err := k.Require(t.Context(), "alice", asIs, s)
	if err != nil {
		t.Fatal(err)
	}
	return found[0]
}

var bob = caller.Caller{Tenant: "acme", Principal: "bob"}

// TestStepsStay: what became of an approval is not changed or removed, not even by whoever
// has the database; and its definition is what its digest is of.
//
// probe: T8
// oracle: the rows, read once more
func TestStepsStay(t *testing.T) {
	k, _ := keeper(t)
	a := require(t, k, subject(t, "x"))
	for _, change := range []string{"UPDATE approval_transition SET state = 'approved'", "DELETE FROM approval_transition"} {
		if _, err := k.DB.ExecContext(t.Context(), change); err == nil || !strings.Contains(err.Error(), "never") {
			t.Errorf("%s: %v", change, err)
		}
	}
	got, err := k.Get(t.Context(), "acme", a.ID)
	if err != nil || got.State != api.ApprovalPending || string(got.Definition) != `{"d":"x"}` || got.Digest != "sha256:f095b97a018c6f94928022e9d583fad93f8621816c8f9ae4dae84a0812e2c435" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestUnsigned: a decision that cannot be signed is none.
func TestUnsigned(t *testing.T) {
	k, signed := keeper(t)
	a := require(t, k, subject(t, "x"))
	sign := k.Sign
	k.Sign = func(api.ApprovalEvent) error { return errors.New("the log is full") }
	if _, err := k.Decide(t.Context(), bob, a.ID, api.ApprovalApproved, api.ApprovalDecision{Seq: a.Seq}); err == nil {
		t.Error("it was decided")
	}
	if again := require(t, k, subject(t, "x")); again.State != api.ApprovalPending || again.Seq != a.Seq {
		t.Errorf("%+v", again)
	}
	k.Sign = sign
	got, err := k.Decide(t.Context(), bob, a.ID, api.ApprovalApproved, api.ApprovalDecision{Seq: a.Seq})
	if err != nil || got.State != api.ApprovalApproved || len(*signed) != 1 || (*signed)[0].Seq != got.Seq || (*signed)[0].Principal != "bob" {
		t.Errorf("control: %+v, %v, signed %+v", got, err, *signed)
	}
}

// TestBounds: what is pending, and what is to be read of it, has an end.
func TestBounds(t *testing.T) {
	k, _ := keeper(t)
	for i := range 100 {
		require(t, k, subject(t, fmt.Sprint(i)))
	}
	if _, err := k.Require(t.Context(), "alice", asIs, subject(t, "one more")); !errors.Is(err, approval.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	a := require(t, k, subject(t, "0")) // which is there
	if _, err := k.Decide(t.Context(), bob, a.ID, api.ApprovalRefused, api.ApprovalDecision{Seq: a.Seq}); err != nil {
		t.Fatal(err)
	}
	require(t, k, subject(t, "one more"))
	if _, err := approval.NewSubject("acme", api.KindTask, "t", strings.Repeat("x", 3<<20)); !errors.Is(err, approval.ErrTooLong) {
		t.Errorf("a long definition: %v", err)
	}
	list, more, err := k.List(t.Context(), "acme", "", "")
	if err != nil || len(list) != approval.PageSize || !more {
		t.Errorf("%d, %t, %v", len(list), more, err)
	}
	rest, more, err := k.List(t.Context(), "acme", "", list[len(list)-1].ID)
	if err != nil || len(rest) != 1 || more {
		t.Errorf("%d, %t, %v", len(rest), more, err)
	}
}

// A deaf receiver answers nothing.
type deaf struct{ posts atomic.Int64 }

func (d *deaf) Post(context.Context, string, time.Time, []byte) error {
	d.posts.Add(1)
	return errors.New("no answer")
}

// TestAttemptsEnd: who does not answer is asked ten times in three days, and then no more.
func TestAttemptsEnd(t *testing.T) {
	k, _ := keeper(t)
	var ahead atomic.Int64
	k.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	require(t, k, subject(t, "x"))
	to := &deaf{}
	for i := range 12 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Announce(ctx, to, slog.New(slog.DiscardHandler))
		}()
		want := int64(min(i+1, 10))
		for range 2000 {
			if to.posts.Load() >= want {
				break
			}
			time.Sleep(time.Millisecond)
		}
		var left int64
		for range 2000 { // what came of it is written down
			if err := k.DB.QueryRow("SELECT coalesce(sum(attempts), 10) FROM approval_delivery").Scan(&left); err != nil {
				t.Fatal(err)
			}
			if left == want {
				break
			}
			time.Sleep(time.Millisecond)
		}
		cancel()
		<-done
		if got := to.posts.Load(); got != want || left != want {
			t.Fatalf("after attempt %d: %d posts, %d written down", i+1, got, left)
		}
		ahead.Add(int64(25 * time.Hour))
	}
}
