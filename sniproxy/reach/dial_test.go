package reach

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/firewall"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testnet"

	"golang.org/x/sys/unix"
)

func addrs(s string) (list []netip.Addr) {
	for f := range strings.FieldsSeq(s) {
		list = append(list, netip.MustParseAddr(f))
	}
	return list
}

func TestInterleave(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1 192.0.2.2 2001:db8::1 2001:db8::2": "[2001:db8::1 192.0.2.1 2001:db8::2 192.0.2.2]",
		"192.0.2.1 192.0.2.2 192.0.2.3 2001:db8::1":   "[2001:db8::1 192.0.2.1 192.0.2.2 192.0.2.3]",
		"192.0.2.1": "[192.0.2.1]", "2001:db8::1": "[2001:db8::1]", "": "[]",
	} {
		if got := fmt.Sprint(interleave(addrs(in))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// known is a resolver that remembers one answer.
type known []netip.Addr

func (k known) Resolve(context.Context, firewall.Name) ([]netip.Addr, error) { return k, nil }

func (k known) Remembered(firewall.Name) ([]netip.Addr, bool, error) { return k, true, nil }

// anywhere is a target whose policy lets every address of the internet pass.
func anywhere(t *testing.T) Target {
	t.Helper()
	return Target{Name: testnet.ParseName(t, "site.example"), Port: 443, Decision: firewall.Decision{Verdict: firewall.Allow}}
}

// hanging is a listener that takes no connection: to dial it hangs.
func hanging(t *testing.T) netip.AddrPort {
	t.Helper()
	_, at := testnet.Full(t, 4)
	return at
}

// An ending is how a dial ended.
type ending struct {
	told int
	conn Conn
	r    *refusal.Refusal
	err  error
}

func (e *ending) Dialled(c Conn, r *refusal.Refusal) { e.told, e.conn, e.r = e.told+1, c, r }
func (e *ending) Panicked(err error)                 { e.err = err }

// Dials that fail or hang: who is tried, when, and that all of them end.
//
// probe: R5
// oracle: the addresses that were dialled
func TestDialStagger(t *testing.T) {
	refused, hangs := netip.MustParseAddrPort("127.0.0.1:1"), hanging(t)
	const hang, fail = "hang", "fail"
	tests := []struct {
		name, addrs string
		answers     map[string]string
		tried       string
		ended       time.Duration
	}{
		{"all fail at once", "1.1.1.1 2606:4700::1", map[string]string{"1.1.1.1": fail, "2606:4700::1": fail},
			"2606:4700::1 at 0s, 1.1.1.1 at 0s", 0},
		{"the first hangs", "1.1.1.1 2606:4700::1", map[string]string{"1.1.1.1": fail, "2606:4700::1": hang},
			"2606:4700::1 at 0s, 1.1.1.1 at 250ms", tryTimeout},
		{"all hang, no more than four", "1.1.1.1 1.1.1.2 1.1.1.3 1.1.1.4 1.1.1.5", nil,
			"1.1.1.1 at 0s, 1.1.1.2 at 250ms, 1.1.1.3 at 500ms, 1.1.1.4 at 750ms", tryTimeout + 3*stagger},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				loop, err := evloop.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				loop.Round()
				start, open := loop.Now, descriptors(t)
				var tried []string
				dialer := &Dialer{Resolver: known(addrs(tt.addrs)), Route: func(addr netip.AddrPort) netip.AddrPort {
					tried = append(tried, fmt.Sprintf("%v at %v", addr.Addr(), time.Since(start)))
					if tt.answers[addr.Addr().String()] == fail {
						return refused
					}
					return hangs
				}}
				var d Dial
				var e ending
				d.Start(t.Context(), loop, dialer, anywhere(t), &e)
				for time.Since(start) < 2*timeout {
					for range 2 * maxTries { // on loopback a refusal is there at once
						loop.Round()
					}
					if e.told > 0 {
						break
					}
					time.Sleep(stagger)
				}
				if e.told != 1 || e.conn.FD >= 0 || e.r == nil || e.r.Reason != firewall.ReasonDial {
					t.Errorf("%+v", e)
				}
				if took := time.Since(start); took < tt.ended || took > tt.ended+stagger {
					t.Errorf("it ended after %v, want %v", took, tt.ended)
				}
				if got := strings.Join(tried, ", "); got != tt.tried {
					t.Errorf("tried %s, want %s", got, tt.tried)
				}
				wantClosed(t, loop, open)
				go loop.Run()
				loop.Stop()
			})
		})
	}
}

// The first to answer wins, the others are ended and closed.
func TestDialWinner(t *testing.T) {
	testnet.NoLeak(t)
	loop, err := evloop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	go loop.Run()
	defer loop.Stop()
	hangs, k := hanging(t), testnet.NewCanary(t)
	open := descriptors(t)
	dialer := &Dialer{Resolver: known(addrs("1.1.1.1 2606:4700::1")), Route: func(addr netip.AddrPort) netip.AddrPort {
		if addr.Addr().Is6() {
			return hangs
		}
		return netip.MustParseAddrPort(k.Addr)
	}}
	conn, addr, r := dialer.Dial(t.Context(), loop, anywhere(t))
	if r != nil || addr.String() != "1.1.1.1:443" {
		t.Fatalf("%v, %+v", addr, r)
	}
	defer conn.Close()
	up := k.Next(t)
	testnet.Send(t, conn, []byte("x"))
	testnet.ReadN(t, up, 1)
	conn.Close()
	up.Close()
	looked := make(chan struct{})
	loop.Post(func() { wantClosed(t, loop, open); close(looked) })
	<-looked
}

// descriptors are how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// wantClosed checks that the loop knows no descriptor and that no more are open than were.
// It is called where the loop runs.
func wantClosed(t *testing.T, loop *evloop.Loop, were int) {
	t.Helper()
	for fd := range 1 << 12 {
		if loop.Handler(fd) != nil {
			t.Errorf("the loop is still told of the descriptor %d", fd)
		}
	}
	if n := descriptors(t); n > were {
		t.Errorf("%d descriptors are open, %d were", n, were)
	}
}

// A dial ends with its context, whoever it waits for.
func TestDialCancelled(t *testing.T) {
	testnet.NoLeak(t)
	loop, err := evloop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	go loop.Run()
	defer loop.Stop()
	hangs := hanging(t)
	for name, resolver := range map[string]Resolver{"look-up": silent{}, "dial": known(addrs("1.1.1.1"))} {
		ctx, cancel := context.WithCancel(t.Context())
		dialling := make(chan struct{}, 1)
		dialer := &Dialer{Resolver: resolver, Route: func(netip.AddrPort) netip.AddrPort {
			dialling <- struct{}{}
			return hangs
		}}
		go func() {
			if name == "dial" {
				<-dialling
			}
			cancel()
		}()
		want := map[string]string{"look-up": "canceled", "dial": "the gate has cut"}[name] // not that it took too long
		if conn, _, r := dialer.Dial(ctx, loop, anywhere(t)); conn != nil || r == nil || !strings.Contains(r.Detail, want) {
			t.Errorf("%s: %v, %+v", name, conn, r)
		}
	}
}

// onLoop makes a loop whose rounds the test makes, and says when it ends.
func onLoop(t *testing.T) *evloop.Loop {
	t.Helper()
	loop, err := evloop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	loop.Round()
	t.Cleanup(func() { go loop.Run(); loop.Stop() })
	return loop
}

// until makes rounds until ok says yes.
func until(t *testing.T, loop *evloop.Loop, what string, ok func() bool) {
	t.Helper()
	testnet.Eventually(t, what, func() bool { loop.Round(); return ok() })
}

// What is under way ends with the dial, whoever ends it, and it can be used again once
// nothing is.
func TestDialEnds(t *testing.T) {
	loop := onLoop(t)
	hangs := hanging(t)
	open := descriptors(t)
	var d Dial
	var e ending
	d.Start(t.Context(), loop, &Dialer{Resolver: silent{}}, anywhere(t), &e)
	if later := d.Cancel(); !later || d.Reusable() {
		t.Errorf("a look-up: told later %t, reusable %t", later, d.Reusable())
	}
	until(t, loop, "the look-up to end", func() bool { return e.told == 1 })
	if e.r == nil || !d.Reusable() {
		t.Errorf("after the look-up: %+v, reusable %t", e, d.Reusable())
	}
	dialer := &Dialer{Resolver: known(addrs("1.1.1.1")), Route: func(netip.AddrPort) netip.AddrPort { return hangs }}
	for name, end := range map[string]func(d *Dial){
		"cancelled": func(d *Dial) {
			if d.Cancel() {
				t.Error("a dial has nothing aside that ends later")
			}
		},
		"abandoned": func(d *Dial) { d.Abandon() },
	} {
		var d Dial
		var e ending
		d.Start(t.Context(), loop, dialer, anywhere(t), &e)
		if descriptors(t) != open+1 {
			t.Fatalf("%s: %d descriptors, %d were open", name, descriptors(t), open)
		}
		end(&d)
		wantClosed(t, loop, open)
		if loop.Round(); e.told != 0 {
			t.Errorf("%s: its owner is told %+v", name, e)
		}
	}
}

// A panic between two tries ends the dial with all that it has open.
func TestDialPanics(t *testing.T) {
	loop := onLoop(t)
	refused, hangs := netip.MustParseAddrPort("127.0.0.1:1"), hanging(t)
	open := descriptors(t)
	routes := []netip.AddrPort{hangs, refused}
	dialer := &Dialer{Resolver: known(addrs("1.1.1.1 1.1.1.2 1.1.1.3")), Route: func(netip.AddrPort) netip.AddrPort {
		if len(routes) == 0 {
			panic("a test")
		}
		next := routes[0]
		routes = routes[1:]
		return next
	}}
	var d Dial
	var e ending
	d.Start(t.Context(), loop, dialer, anywhere(t), &e)
	until(t, loop, "the end", func() bool { return e.told == 1 })
	if e.r == nil || e.r.Reason != firewall.ReasonFault || e.conn.FD >= 0 {
		t.Errorf("%+v", e)
	}
	wantClosed(t, loop, open)
}

// A connection that comes about while the loop waits for it is its caller's alone then:
// to a host, or to a proxy, which is named where it fails.
func TestDialLater(t *testing.T) {
	loop := onLoop(t)
	ln, at := testnet.Full(t, 1)
	dialer := &Dialer{Resolver: known(addrs("1.1.1.1")), Route: func(netip.AddrPort) netip.AddrPort { return at }}
	w := &waiter{loop: loop, done: make(chan struct{})}
	w.dial.Start(t.Context(), loop, dialer, anywhere(t), w)
	if loop.Round(); w.over {
		t.Fatal("it is connected at once")
	}
	for range 2 { // makes room, and waits for the one that had none
		fd, _, err := unix.Accept4(ln, unix.SOCK_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
	}
	until(t, loop, "the connection", func() bool { return w.over })
	if w.refused != nil || !w.conn.Registered || loop.Handler(w.conn.FD) != nil {
		t.Errorf("%+v, %+v, with the loop: %t", w.conn, w.refused, loop.Handler(w.conn.FD) != nil)
	}
	unix.Close(w.conn.FD)

	var d Dial
	var e ending
	to := anywhere(t)
	to.Decision.Via = "corp"
	dialer = &Dialer{Resolver: known(addrs("1.1.1.1")), Proxy: func(string) (Proxy, bool) {
		return Proxy{Addr: netip.MustParseAddrPort("127.0.0.1:1")}, true
	}}
	d.Start(t.Context(), loop, dialer, to, &e)
	until(t, loop, "the end", func() bool { return e.told == 1 })
	if e.r == nil || !strings.Contains(e.r.Detail, "the proxy corp") {
		t.Errorf("%+v", e.r)
	}
}

// silent is a resolver that does not answer.
type silent struct{}

func (silent) Resolve(ctx context.Context, _ firewall.Name) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// The dialer goes where it is told, whatever the environment says of proxies.
//
// probe: R13
// oracle: the listener on the far side, which is reached from the dialler itself
func TestPlainDial(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, "http://127.0.0.1:1")
	}
	loop, err := evloop.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	go loop.Run()
	defer loop.Stop()
	k := testnet.NewCanary(t)
	dialer := &Dialer{Resolver: known(addrs("1.1.1.1")), Route: func(netip.AddrPort) netip.AddrPort { return netip.MustParseAddrPort(k.Addr) }}
	conn, _, r := dialer.Dial(t.Context(), loop, anywhere(t))
	if r != nil {
		t.Fatal(r)
	}
	defer conn.Close()
	if far := k.Next(t); far.RemoteAddr().String() != conn.LocalAddr().String() {
		t.Errorf("the canary was reached from %v, not %v", far.RemoteAddr(), conn.LocalAddr())
	}
}

// TestIsSelf finds a connection that leads back to the gate.
//
// probe: R7
// oracle: the verdict on pairs of addresses, of which one may pass
func TestIsSelf(t *testing.T) {
	public, other, private := netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("1.0.0.1"), netip.MustParseAddr("127.0.0.1")
	if !isSelf(public, public) || isSelf(other, public) || isSelf(private, private) {
		t.Error("a public address of one's own, and it alone, is refused")
	}
}
