package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
)

// hosts collects the hosts of a sequence of decisions.
func hosts(seq iter.Seq2[account.Record, error]) (names []string, err error) {
	for r, e := range seq {
		if e != nil {
			return names, e
		}
		names = append(names, r.Host)
	}
	return names, nil
}

// Without follow, a stream holds what was decided so far and ends.
func TestDecisionsSoFar(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-2", "other"))
	g.wantResolved(t, 1, "a.site.example.")
	g.wantNXDOMAIN(t, 2, "b.site.example.")
	g.wantNXDOMAIN(t, 1, "c.example.")
	for _, test := range []struct{ run, want string }{
		{"run-1", "a.site.example c.example"}, {"run-2", "b.site.example"}, {"", "a.site.example b.site.example c.example"},
	} {
		got, err := hosts(g.Decisions(t.Context(), test.run, false))
		if err != nil || strings.Join(got, " ") != test.want {
			t.Errorf("run %q: %v, %v; want %s", test.run, got, err, test.want)
		}
	}
	for r, err := range g.Decisions(t.Context(), "run-1", false) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Run != "run-1" || r.Cell != "c1" || r.Policy != "strict" || r.Digest == "" || r.Time.IsZero() || !r.Client.IsValid() {
			t.Errorf("record %+v", r)
		}
		break // a reader may leave
	}
	_, err := hosts(g.Decisions(t.Context(), "run-3", true))
	wantError(t, err, 404, control.CodeNotLeased)
}

// A follower sees what was and what comes, and a clean end when the lease ends.
func TestDecisionsFollow(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.wantResolved(t, 1, "before.site.example.")
	lines := make(chan string)
	ended := make(chan error, 1)
	go func() {
		for r, err := range g.Decisions(t.Context(), "run-1", true) {
			if err != nil {
				ended <- err
				return
			}
			lines <- r.Host
		}
		ended <- nil
	}()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-lines:
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		case err := <-ended:
			t.Fatalf("ended: %v", err)
		case <-time.After(10 * time.Second):
			t.Fatalf("no line, want %s", want)
		}
	}
	next("before.site.example")
	for i := range 5 {
		name := fmt.Sprintf("n%d.site.example", i)
		g.wantResolved(t, 1, name+".")
		next(name)
	}
	go g.Release(context.Background(), "c1")
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the end of a lease is an error: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the stream outlives its lease")
	}
}

// When the gate goes away, however it does, a follower gets an error.
func TestDecisionsBreak(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.wantResolved(t, 1, "a.site.example.")
	for _, run := range []string{"run-1", ""} {
		connected := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			for _, err := range g.Decisions(t.Context(), run, true) {
				if err != nil {
					ended <- err
					return
				}
				close(connected)
			}
			ended <- nil
		}()
		<-connected
		defer func() {
			select {
			case err := <-ended:
				if !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("run %q: ended with %v", run, err)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("run %q: the stream outlives the gate", run)
			}
		}()
	}
	g.stop()

	_, err := hosts(g.Decisions(t.Context(), "", false))
	var refused *control.Error
	if err == nil || errors.As(err, &refused) {
		t.Errorf("no gate: %v, want an error that is no refusal", err)
	}
}

// A run that has two cells streams both, and ends with the last.
func TestDecisionsOfTwoCells(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.lease(t, "c2", cellLease(2, "run-1", "strict"))
	g.wantResolved(t, 1, "a.site.example.")
	g.release(t, "c1")
	g.wantResolved(t, 2, "b.site.example.")
	got, err := hosts(g.Decisions(t.Context(), "run-1", false))
	if err != nil || strings.Join(got, " ") != "a.site.example b.site.example" {
		t.Errorf("%v, %v", got, err)
	}
	g.release(t, "c2")
	_, err = hosts(g.Decisions(t.Context(), "run-1", false))
	wantError(t, err, 404, control.CodeNotLeased)
}

// A reader that does not read loses the oldest records and learns how many; the
// gate does not wait for it.
func TestDecisionsSlowReader(t *testing.T) {
	const made = 20 * runRecords
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	g.wantResolved(t, 1, "first.site.example.")
	l, err := g.server.find("c1")
	if err != nil {
		t.Fatal(err)
	}
	got, dropped, released := 0, 0, make(chan control.Cell, 1)
	for r, err := range g.Decisions(t.Context(), "run-1", true) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Host == "first.site.example":
			for range made {
				l.record(account.Record{Kind: account.KindDNS, Verdict: firewall.Allow, Reason: firewall.ReasonListed, Host: "flood.example"})
			}
			go func() {
				c, _ := g.Release(context.Background(), "c1")
				released <- c
			}()
		case r.Host == "flood.example":
			got++
		case r.Kind == control.KindDropped:
			var n int
			fmt.Sscan(r.Detail, &n)
			dropped += n
		}
	}
	if dropped == 0 || got < runRecords || got+dropped != made {
		t.Errorf("%d lines and %d dropped of %d", got, dropped, made)
	}
	if n := count((<-released).Receipt, account.KindDNS, "flood.example", firewall.ReasonListed); n != made {
		t.Errorf("%d decisions in the receipt, want %d", n, made)
	}
}

// A follower knows that it is connected before there is a decision.
func TestDecisionsHeadersComeAtOnce(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	c, err := net.Dial("unix", g.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "GET /v1/decisions?run=run-1&follow=true HTTP/1.1\r\nHost: gate\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "HTTP/1.1 200" {
		t.Errorf("%q, %v", got, err)
	}
}
