package admission_test

import (
	"context"
	"net"
	"testing"
	"time"

	"sallyport/sniproxy/admission"
	"sallyport/sniproxy/reach"
	"sallyport/sniproxy/testcell"
	"sallyport/sniproxy/testnet"
	"sallyport/sniproxy/tunnel"
)

// While too many records wait to be delivered, connections wait as well, and are
// served afterwards.
func TestAcceptorRests(t *testing.T) {
	testnet.NoLeak(t)
	c, k := testcell.New(t), testnet.NewCanary(t)
	var cell admission.Cell
	var dialer reach.Dialer
	c.Configure(&cell, &dialer, "strict")
	c.Origin("127.0.0.1:443", k.Addr)
	addr := c.Serve(func(ctx context.Context, ln net.Listener) error { return tunnel.Serve(ctx, ln, &cell, &dialer) })
	c.Open(addr, k)
	recorder := admission.Running()[0].Recorder
	recorder.AddUndelivered(admission.MaxUndelivered + 1)
	hello := testnet.HelloFor("site.example")
	client := testnet.Dial(t, addr)
	testnet.Send(t, client, hello)
	time.Sleep(10 * admission.FirstRest)
	if n := cell.Open(); n != 1 {
		t.Errorf("%d connections are open, want 1", n)
	}
	recorder.AddUndelivered(-admission.MaxUndelivered - 1)
	testnet.ReadN(t, k.Next(t), len(hello))
}
