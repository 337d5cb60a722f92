package evloop

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/internal/contain"
)

// patience bounds every wait of the tests; none of them takes that long.
const patience = 20 * time.Second

// A listener notes what it is told, on a channel.
type listener struct {
	told  chan string
	ready func() (again bool)
}

func (h *listener) Ready(events uint32) (again bool) {
	h.told <- fmt.Sprintf("events %#x", events)
	return h.ready != nil && h.ready()
}

func (h *listener) Panicked(err error) { h.told <- err.Error() }

func (h *listener) Expired() { h.told <- "expired" }

func newListener() *listener { return &listener{told: make(chan string, 100)} }

func (h *listener) next(t *testing.T) string {
	t.Helper()
	select {
	case s := <-h.told:
		return s
	case <-time.After(patience):
		t.Fatal("nothing was told")
		return ""
	}
}

// running is a loop that ends with the test.
func running(t *testing.T, work func() bool) *Loop {
	t.Helper()
	l, err := New(work)
	if err != nil {
		t.Fatal(err)
	}
	go l.Run()
	t.Cleanup(l.Stop)
	return l
}

// do runs f on the loop and waits for it.
func (l *Loop) do(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	l.Post(func() { f(); close(done) })
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("what was posted was not run")
	}
}

func pipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func write(t *testing.T, fd int) {
	t.Helper()
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

const edge = unix.EPOLLIN | unix.EPOLLET

// Events are told to who has the descriptor when they come, and to nobody once it is
// forgotten.
func TestEvents(t *testing.T) {
	l, first, second := running(t, nil), newListener(), newListener()
	r, w := pipe(t)
	l.do(t, func() {
		if err := l.Register(r, edge, first); err != nil {
			t.Error(err)
		}
	})
	write(t, w)
	if got := first.next(t); got != "events 0x1" {
		t.Errorf("told %q", got)
	}
	l.do(t, func() { l.HandOver(r, second) })
	write(t, w)
	second.next(t)
	l.do(t, func() { l.Forget(r) })
	write(t, w)
	l.do(t, func() {})
	l.do(t, func() {
		if l.Handler(r) != nil || l.Handler(-1) != nil || l.Handler(1<<20) != nil {
			t.Error("a descriptor that is forgotten has a handler")
		}
		if err := l.Register(1<<20, edge, first); err == nil || !strings.Contains(err.Error(), "epoll_ctl") || l.Handler(1<<20) != nil {
			t.Errorf("a descriptor that is none: %v", err)
		}
	})
	if len(first.told)+len(second.told) > 0 {
		t.Errorf("told %d and %d times more", len(first.told), len(second.told))
	}
}

// An event of a descriptor that is closed does not reach the next one of its number,
// though the kernel has said so already.
func TestEventOfTheOneBefore(t *testing.T) {
	l, first, second := running(t, nil), newListener(), newListener()
	r1, w1 := pipe(t)
	r2, w2 := pipe(t)
	stranger := newListener()
	l.do(t, func() {
		if err := errors.Join(l.Register(r1, edge, first), l.Register(r2, edge, second)); err != nil {
			t.Error(err)
		}
		first.ready = func() bool { // with both events there
			l.Forget(r1)
			l.Forget(r2)
			l.entries[r2] = entry{stranger, l.stamp + 1}
			return false
		}
		write(t, w1)
		write(t, w2)
	})
	first.next(t)
	l.do(t, func() {})
	if len(second.told)+len(stranger.told) > 0 {
		t.Error("an event of a descriptor that is closed was told")
	}
}

// A handler that has more to do is asked again though there is no further event, and
// one that panics is told so.
func TestAgainAndPanic(t *testing.T) {
	l, h := running(t, nil), newListener()
	r, w := pipe(t)
	left := 3
	h.ready = func() bool {
		if left--; left == 0 {
			panic("a test")
		}
		return true
	}
	l.do(t, func() {
		if err := l.Register(r, unix.EPOLLIN, h); err != nil { // at its level: it stays readable
			t.Error(err)
		}
	})
	write(t, w)
	for range 3 {
		if got := h.next(t); got != "events 0x1" {
			t.Errorf("told %q", got)
		}
	}
	if got, want := h.next(t), contain.New(nil).Error(); got != want {
		t.Errorf("told %q", got)
	}
	h.next(t) // what was left is not lost
	l.do(t, func() { l.Forget(r) })
}

// Timers call back in the order of their times, at them, moved ones too, and those that
// are unset do not.
func TestTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer l.epoll.Close()
		var got []string
		start := time.Now()
		timers := make([]*Timer, 4)
		for i := range timers {
			timers[i] = &Timer{Owner: expiry(func() { got = append(got, fmt.Sprint(i, " at ", time.Since(start))) })}
			l.Set(timers[i], start.Add(time.Duration(4-i)*time.Second))
		}
		l.Set(timers[3], start.Add(5*time.Second))
		l.Unset(timers[1])
		l.Unset(timers[1])
		for i := range timers {
			if timers[i].IsSet() != (i != 1) {
				t.Errorf("timer %d is set: %v", i, timers[i].IsSet())
			}
		}
		for range 12 {
			l.Round()
			time.Sleep(time.Second / 2)
		}
		if s := strings.Join(got, ", "); s != "2 at 2s, 0 at 4s, 3 at 5s" {
			t.Errorf("expired: %s", s)
		}
	})
}

type expiry func()

func (f expiry) Expired() { f() }

// A loop that sleeps wakes for its earliest timer, and for one that is set meanwhile.
func TestTimersWake(t *testing.T) {
	l, h := running(t, nil), newListener()
	late, soon := &Timer{Owner: newListener()}, &Timer{Owner: h}
	l.do(t, func() { l.Set(late, l.Now.Add(time.Hour)) })
	for range 20 {
		l.do(t, func() { l.Set(soon, l.Now.Add(time.Millisecond)) })
		h.next(t)
	}
	l.do(t, func() { l.Unset(late) })
}

// Work is done before the loop waits again, all of it, and posts are not held up by it.
func TestWork(t *testing.T) {
	left, done := 0, make(chan struct{}, 1)
	l := running(t, func() bool {
		if left > 0 {
			if left--; left == 0 {
				done <- struct{}{}
			}
		}
		return left > 0
	})
	l.do(t, func() { left = 1 << 40 })
	l.do(t, func() { left = 1000 })
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the work is not done")
	}
}

// Who posts is heard, also by a loop that is just falling asleep, and so are many who
// post at the same time.
func TestPost(t *testing.T) {
	l := running(t, nil)
	for range 20_000 {
		l.do(t, func() {})
	}
	var posters sync.WaitGroup
	const each = 2000
	told := make(chan struct{}, 8*each)
	for range 8 {
		posters.Go(func() {
			for range each {
				l.Post(func() { told <- struct{}{} })
			}
		})
	}
	posters.Wait()
	l.do(t, func() {})
	if len(told) != cap(told) {
		t.Errorf("%d of %d were run", len(told), cap(told))
	}
}

// A loop that has ended says so, and posts to it do nothing.
func TestStop(t *testing.T) {
	l, err := New(nil)
	if err != nil {
		t.Fatal(err)
	}
	go l.Run()
	select {
	case <-l.Ended():
		t.Fatal("it has ended before")
	default:
	}
	l.Stop()
	<-l.Ended()
	l.Post(func() { t.Error("it goes on") })
}

// What is taken out of a connection is open, and no longer the connection's.
func TestTake(t *testing.T) {
	pc, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	fd, err := Take(pc)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	if err := pc.Close(); err == nil {
		t.Error("the connection is open")
	}
	if _, err := Take(pc); err == nil {
		t.Error("taken twice")
	}
}
