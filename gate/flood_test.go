package gate

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/decisionlog"
)

// What a sandbox has refused without end has a bounded number of lines, which come
// to all of it; the receipt and the metrics have each. A refusal by itself is on
// record as it was.
//
// probe: D20, X5
// oracle: the lines of the log, and their counts beside the connections that were made
func TestFloodOfRefusalsHasFewLines(t *testing.T) {
	g := start(t, upstream(t), nil)
	g.lease(t, "c1", cellLease(1, "run-1", "strict"))
	hello := helloOf(t, "evil.example")
	floods := []struct {
		port   uint16
		sent   string
		kind   account.Kind
		host   string
		reason firewall.Reason
		detail string
	}{
		{g.daemon.ports.dns, "\x00\x00", account.KindDNS, "", firewall.ReasonBadQuery, "the length is shorter than a header"},
		{g.daemon.ports.tls, "SSH-2.0\r\n", account.KindTLS, "", firewall.ReasonBadHello, "not TLS: the first byte is 0x53"},
		{g.daemon.ports.tls, hello, account.KindTLS, "evil.example", firewall.ReasonNotListed, ""},
		{g.daemon.ports.http, "\x16\x03", account.KindHTTP, "", firewall.ReasonBadRequest, "TLS on the port of plain HTTP"},
		{g.daemon.ports.http, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", account.KindHTTP, "evil.example", firewall.ReasonNotListed, ""},
	}
	const times = 600
	begun := time.Now()
	for _, flood := range floods {
		for range times {
			g.refused(t, flood.port, flood.sent)
		}
	}
	for _, flood := range floods {
		t.Run(fmt.Sprint(flood.kind, " ", flood.reason), func(t *testing.T) {
			var lines, sum int64
			var first account.Record
			for end := time.Now().Add(10 * time.Second); sum < times && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				lines, sum = 0, 0
				for _, r := range g.logged(t) {
					if r.Kind != flood.kind || r.Reason != flood.reason || r.Verdict != firewall.Deny {
						continue
					}
					if sum == 0 {
						first = r
					}
					lines, sum = lines+1, sum+max(r.Count, 1)
				}
			}
			most := decisionlog.LineBurst + (decisionlog.LineRate+1)*int64(2+time.Since(begun)/time.Second)
			if sum != times || lines > most {
				t.Errorf("%d lines, want at most %d, of %d refusals, want %d", lines, most, sum, times)
			}
			if first.Host != flood.host || first.Detail != flood.detail || !first.Client.IsValid() {
				t.Errorf("the first is %+v", first)
			}
			c, err := g.Cell(t.Context(), "c1")
			if n := count(c.Receipt, flood.kind, flood.host, flood.reason); err != nil || n != times {
				t.Errorf("%d in the receipt, %v", n, err)
			}
			metric := fmt.Sprintf(`sallyport_decisions_total{kind="%s",policy="strict",reason="%s",verdict="deny"} %d`, flood.kind, flood.reason, times)
			if !strings.Contains(g.metrics(t), metric) {
				t.Errorf("there is no %s", metric)
			}
		})
	}
}

// refused sends something on a connection of its own and waits for its end.
func (g *testGate) refused(t *testing.T, port uint16, sent string) {
	t.Helper()
	c, err := g.dialCell("tcp4", 1, 1, port)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, sent)
	_, _ = io.Copy(io.Discard, c)
	_ = c.(*net.TCPConn).SetLinger(0) // leaves no port behind that waits
}

// helloOf is the ClientHello of Go for a host.
func helloOf(t *testing.T, host string) string {
	t.Helper()
	client, far := net.Pipe()
	defer far.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: host}).Handshake()
		client.Close()
	}()
	b := make([]byte, 1<<14)
	n, err := far.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// A refusal allocates nothing more than an allowance does.
func TestRefusalAllocations(t *testing.T) {
	l := newTestLease()
	records, batch := decisions([]string{"a.npmjs.org"}, 32), make([]account.Record, 32)
	for i := range records {
		records[i].Verdict, records[i].Reason = firewall.Deny, firewall.ReasonNotListed
	}
	deliver := func() {
		copy(batch, records)
		if err := l.deliver(batch); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		deliver()
	}
	if n := testing.AllocsPerRun(100, deliver); n != 0 {
		t.Errorf("%v allocations for %d refusals, want none", n, len(records))
	}
	l.limit.End()
}
