package forward

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/testnet"
)

// A slowResolver answers when it may.
type slowResolver struct {
	reach.Resolver
	waiting atomic.Int64
	may     chan struct{}
}

func (r *slowResolver) Resolve(ctx context.Context, name firewall.Name) ([]netip.Addr, error) {
	r.waiting.Add(1)
	defer r.waiting.Add(-1)
	select {
	case <-r.may:
		return r.Resolver.Resolve(ctx, name)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Clients of one run, as many as may be, each send the largest head, of a request that
// is allowed, with a body without an end, to a server that takes nothing and begins an
// answer that they do not read. The bound on what heads hold is one on these as well,
// while the gate still looks for the server and afterwards.
//
// probe: S20
// oracle: the server's counts and the process's memory meanwhile, the records, and what
// the far side gets of heads and bodies
func TestForwardSwarm(t *testing.T) {
	testnet.NoLeak(t)
	var slow *slowResolver
	c := newCell(t, "strict", func(s *server) {
		slow = &slowResolver{Resolver: s.Resolver, may: make(chan struct{})}
		s.Resolver = slow
	})
	k := testnet.NewCanary(t)
	c.Origin("127.0.0.1:80", k.Addr)
	head := "POST / HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\n" +
		strings.Repeat("X-A: "+strings.Repeat("x", 633)+"\r\n", 100) + "\r\n"
	if len(head) > maxHead || len(head) < maxHead-2000 {
		t.Fatalf("a head of %d bytes", len(head))
	}
	before := testnet.Memory()
	for range admission.DefaultMaxConns {
		conn := testnet.Dial(t, c.http)
		testnet.Send(t, conn, []byte(head+"10000\r\n"+strings.Repeat("y", 20_000)))
	}

	// While the resolver takes its time, each head that was accepted is held.
	var refused []account.Record
	testnet.Eventually(t, "every request to wait or to be refused", func() bool {
		refused = c.Records()
		return slow.waiting.Load()+int64(len(refused)) == admission.DefaultMaxConns
	})
	accepted, held := slow.waiting.Load(), c.server.HeadBytes()
	if held > admission.SharedBytes || held < accepted*maxHead || accepted < admission.SharedBytes/maxHead-8 {
		t.Errorf("%d heads are accepted, %d bytes on account; want at most %d, and all that there are", accepted, held, admission.SharedBytes)
	}
	testnet.Eventually(t, "those that are refused to be gone", func() bool { return c.server.Open() == accepted })
	var each int64
	perConn := func() bool { each = (testnet.Memory() - before) / accepted; return each < maxStalled+held/accepted }
	testnet.Eventually(t, "each to hold its head and little more", perConn)
	t.Logf("%d requests accepted, %d refused; %d KiB each while they wait", accepted, len(refused), each>>10)
	for _, r := range refused {
		if r.Verdict != firewall.Deny || r.Reason != firewall.ReasonLimit || r.Upstream.IsValid() {
			t.Fatalf("record %+v", r)
		}
	}

	// Once their servers have the heads, nothing is held but what copies the bodies.
	close(slow.may)
	var far []net.Conn
	for range accepted {
		up := k.Next(t)
		_, _ = io.ReadFull(up, make([]byte, len(head)))
		testnet.Send(t, up, []byte("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nx"))
		far = append(far, up)
	}
	testnet.Eventually(t, "the heads to be let go", func() bool { return c.server.HeadBytes() == 0 })
	held = 0
	testnet.Eventually(t, "each to hold little", perConn)
	t.Logf("%d KiB each when they stall", each>>10)
	for _, up := range far {
		up.Close()
	}
	c.End()
	if held := c.server.HeadBytes(); held != 0 {
		t.Errorf("%d bytes on account at the end", held)
	}
}

// maxStalled is what a stalled exchange may hold, in bytes: see docs/operating.md.
const maxStalled = 100 << 10
