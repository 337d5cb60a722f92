package reach

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/firewall"
	"sallyport/internal/evloop"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testnet"
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
				start := loop.Now
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
				for fd := range 1 << 12 {
					if loop.Handler(fd) != nil {
						t.Errorf("the descriptor %d is still open", fd)
					}
				}
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
	left := make(chan int)
	loop.Post(func() {
		n := 0
		for fd := range 1 << 12 {
			if loop.Handler(fd) != nil {
				n++
			}
		}
		left <- n
	})
	if n := <-left; n != 0 {
		t.Errorf("%d descriptors are with the loop", n)
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
		if conn, _, r := dialer.Dial(ctx, loop, anywhere(t)); conn != nil || r == nil {
			t.Errorf("%s: %v, %+v", name, conn, r)
		}
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
