package tunnel

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/sniproxy/refusal"
	"sallyport/sniproxy/testnet"
)

// An unmodified TLS client reaches an allowed host, and the record says so.
//
// probe: S22
// oracle: the server on the far side, which says which name it was asked for
func TestTunnelRealClient(t *testing.T) {
	testnet.NoLeak(t)
	origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello "+r.TLS.ServerName)
	}))
	defer origin.Close()
	c := newCell(t, "strict", nil)
	c.Origin("127.0.0.1:443", origin.Listener.Addr().String())

	for i, name := range []string{"site.example", "API.Site.Example"} {
		c.Resolver.Set("api.site.example", "127.0.0.1")
		conn := tls.Client(testnet.Dial(t, c.tls), &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+name+"\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || !strings.HasSuffix(string(got), "hello "+name) {
			t.Fatalf("got %q, %v", got, err)
		}
		conn.Close()
		r := c.Last(i + 1)
		want := account.Record{
			Time: r.Time, Kind: account.KindTLS, Host: strings.ToLower(name), Port: 443,
			Verdict: firewall.Allow, Reason: firewall.ReasonListed, Rule: ".site.example", Line: 5, Digest: c.server.Policy.Digest(),
			Client: r.Client, Upstream: netip.MustParseAddrPort("127.0.0.1:443"),
			BytesUp: r.BytesUp, BytesDown: r.BytesDown, DurationMS: r.DurationMS,
		}
		if r != want || r.BytesUp < 500 || r.BytesDown < 500 {
			t.Errorf("record %+v, want %+v", r, want)
		}
	}
	c.End()
}

// A refused client learns of it at once, from an alert that it can name.
//
// probe: R11
// oracle: the count of look-ups, the alert that the client gets and the record
func TestTunnelRefusalIsReadable(t *testing.T) {
	c := newCell(t, "strict", nil)
	start := time.Now()
	err := tls.Client(testnet.Dial(t, c.tls), &tls.Config{ServerName: "evil.example"}).Handshake()
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("error %v, want access denied", err)
	}
	if d := time.Since(start); d > testnet.Patience/2 {
		t.Errorf("the refusal took %v", d)
	}
	if r := c.Last(1); r.Reason != firewall.ReasonNotListed || r.Host != "evil.example" {
		t.Errorf("record %+v", r)
	}
	if n := c.Resolver.Asked.Load(); n != 0 {
		t.Errorf("%d look-ups of a refused name", n)
	}
}

// What reaches the upstream is what the client sent, to the byte, however it
// was cut, and together with what followed the hello.
//
// probe: S22
// oracle: the bytes that arrive at the upstream, compared with those that were sent;
// the counts in the record
func TestTunnelReplaysHello(t *testing.T) {
	testnet.NoLeak(t)
	early := []byte("\x17\x03\x03\x00\x05early")
	small := testnet.Message(testnet.SNI("site.example"), testnet.NewExt(0x0a0a, nil), testnet.NewExt(0x1a1a, []byte{0}), testnet.NewExt(10, []byte{0, 2, 0x2a, 0x2a}))
	tests := []struct {
		name    string
		raw     []byte
		segment int // bytes a write, 0 for all at once
	}{
		{"one record", testnet.Record(small), 0},
		// probe: S1
		{"one byte a segment", testnet.Record(small), 1},
		// probe: S2
		{"one byte a record", testnet.CutRecords(small, 1), 0},
		{"one byte a record and segment", testnet.CutRecords(small, 1), 1},
		// probe: S3
		{"Go's client, post-quantum", testnet.GoHello(t, "site.example"), 0},
		{"Go's client, one byte a segment", testnet.GoHello(t, "site.example"), 1},
		{"20 KB over two records", testnet.Record(testnet.Padded("site.example", 20_000)), 0},
		{"60 KB", testnet.Record(testnet.Padded("site.example", 60_000)), 1000},
		// probe: S2, S3
		{"60 KB, one byte a record", testnet.CutRecords(testnet.Padded("site.example", 60_000), 1), 0},
		// probe: S16
		{"bytes after the hello", append(testnet.Record(small), early...), 0},
		// probe: S10, S14
		{"GREASE names in upper case", testnet.Record(testnet.Message(testnet.NewExt(0x5a5a, []byte{1}), testnet.SNI("SITE.EXAMPLE"), testnet.NewExt(0xdada, nil))), 0},
		{"record version 3.3", bytes.Replace(testnet.Record(small), []byte{22, 3, 1}, []byte{22, 3, 3}, 1), 0},
	}
	c := newCell(t, "strict", nil)
	k := testnet.NewCanary(t)
	c.Origin("127.0.0.1:443", k.Addr)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := testnet.Dial(t, c.tls)
			step := tt.segment
			if step == 0 {
				step = len(tt.raw)
			}
			for b := tt.raw; len(b) > 0; b = b[min(step, len(b)):] {
				testnet.Send(t, client, b[:min(step, len(b))])
			}
			up := k.Next(t)
			if got := testnet.ReadN(t, up, len(tt.raw)); !bytes.Equal(got, tt.raw) {
				t.Fatalf("the upstream got other bytes")
			}
			testnet.Send(t, client, []byte("more"))
			if got := testnet.ReadN(t, up, 4); string(got) != "more" {
				t.Errorf("then %q", got)
			}
			testnet.Send(t, up, []byte("answer"))
			if got := testnet.ReadN(t, client, 6); string(got) != "answer" {
				t.Errorf("back %q", got)
			}
			client.Close()
			up.Close()
			r := c.Last(i + 1)
			if !(r.Verdict == firewall.Allow && r.BytesUp == int64(len(tt.raw)+4) && r.BytesDown == 6) {
				t.Errorf("record %+v", r)
			}
		})
	}
	if held := c.server.HeadBytes(); held != 0 {
		t.Errorf("%d bytes still on account", held)
	}
}

// Every hello that must not pass: the client gets an alert or nothing, nothing
// is looked up or dialled, one record says why. The positive control is the
// same hello in good form, before and after.
//
// oracle: a listener on the far side and a resolver that count, the bytes that the
// client gets, and the record. A hello in good form reaches the listener before and
// after
func TestTunnelRefusesHello(t *testing.T) {
	testnet.NoLeak(t)
	good := testnet.SNI("site.example")
	name := func(s string) []byte { return testnet.Record(testnet.Message(testnet.SNI(s))) }
	bare := testnet.Message()
	bare = testnet.Handshake(1, bare[4:len(bare)-2])
	tests := []struct {
		name   string
		raw    []byte
		reason firewall.Reason
		alert  refusal.Alert
		host   string
	}{
		{"no extensions", testnet.Record(bare), firewall.ReasonNoSNI, refusal.MissingExtension, ""},
		{"length beyond the extensions", testnet.Record(testnet.Handshake(1, append(testnet.Message(good)[4:], 0))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		// probe: S5
		{"no SNI", testnet.Record(testnet.Message(testnet.NewExt(10, []byte{0, 0}))), firewall.ReasonNoSNI, refusal.MissingExtension, ""},
		// probe: R11
		{"unlisted", name("evil.example"), firewall.ReasonNotListed, refusal.AccessDenied, "evil.example"},
		{"suffix trick", name("evilsite.example"), firewall.ReasonNotListed, refusal.AccessDenied, "evilsite.example"},
		{"floor name", name("metadata.google.internal"), firewall.ReasonFloorName, refusal.AccessDenied, "metadata.google.internal"},
		// probe: X9
		{"look-alike in Cyrillic", name("xn--ste-jhd.example"), firewall.ReasonNotListed, refusal.AccessDenied, "xn--ste-jhd.example"},
		// probe: S16
		{"bytes behind a refused hello", append(name("evil.example"), "\x17\x03\x03\x00\x05early"...), firewall.ReasonNotListed, refusal.AccessDenied, "evil.example"},
		// probe: S6
		{"two names", testnet.Record(testnet.Message(testnet.SNIExt(testnet.SNIEntry(0, "site.example"), testnet.SNIEntry(0, "evil.example")))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"two extensions", testnet.Record(testnet.Message(good, testnet.SNI("evil.example"))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"same name twice", testnet.Record(testnet.Message(good, good)), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"another extension twice", testnet.Record(testnet.Message(good, testnet.NewExt(10, nil), testnet.NewExt(10, nil))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		// probe: S7
		{"unknown name type first", testnet.Record(testnet.Message(testnet.SNIExt(testnet.SNIEntry(9, "x"), testnet.SNIEntry(0, "site.example")))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"unknown name type after", testnet.Record(testnet.Message(testnet.SNIExt(testnet.SNIEntry(0, "site.example"), testnet.SNIEntry(9, "x")))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		// probe: S8
		{"empty name", name(""), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"empty list", testnet.Record(testnet.Message(testnet.NewExt(0, []byte{0, 0}))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"empty extension", testnet.Record(testnet.Message(testnet.NewExt(0, nil))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"list too long", testnet.Record(testnet.Message(testnet.NewExt(0, append([]byte{0, 99}, testnet.SNIEntry(0, "site.example")...)))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"bytes after the list", testnet.Record(testnet.Message(testnet.NewExt(0, append(testnet.Vec16(testnet.SNIEntry(0, "site.example")), 0)))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"name longer than the list", testnet.Record(testnet.Message(testnet.NewExt(0, testnet.Vec16([]byte{0, 0, 50, 'a'})))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		// probe: S9
		{"trailing dot", name("site.example."), firewall.ReasonBadName, refusal.UnrecognizedName, "site.example."},
		// probe: S11, F9
		{"NUL", name("site.example\x00.evil.example"), firewall.ReasonBadName, refusal.UnrecognizedName, `site.example\x00.evil.example`},
		{"CRLF", name("site.example\r\nHost: x"), firewall.ReasonBadName, refusal.UnrecognizedName, `site.example\r\nHost: x`},
		{"newline and forged record", name("site.example\n{\"verdict\":\"allow\"}"), firewall.ReasonBadName, refusal.UnrecognizedName, `site.example\n{"verdict":"allow"}`},
		{"space", name("site.example "), firewall.ReasonBadName, refusal.UnrecognizedName, "site.example "},
		{"at", name("a@site.example"), firewall.ReasonBadName, refusal.UnrecognizedName, "a@site.example"},
		{"slash", name("site.example/"), firewall.ReasonBadName, refusal.UnrecognizedName, "site.example/"},
		{"colon", name("site.example:443"), firewall.ReasonBadName, refusal.UnrecognizedName, "site.example:443"},
		// probe: S12
		{"IPv4", name("127.0.0.1"), firewall.ReasonBadName, refusal.UnrecognizedName, "127.0.0.1"},
		{"IPv6", name("::1"), firewall.ReasonBadName, refusal.UnrecognizedName, "::1"},
		{"decimal", name("2130706433"), firewall.ReasonBadName, refusal.UnrecognizedName, "2130706433"},
		{"hexadecimal", name("0x7f.1"), firewall.ReasonBadName, refusal.UnrecognizedName, "0x7f.1"},
		{"short form", name("127.1"), firewall.ReasonBadName, refusal.UnrecognizedName, "127.1"},
		{"single label", name("localhost"), firewall.ReasonBadName, refusal.UnrecognizedName, "localhost"},
		// probe: S13
		{"wildcard", name("*.site.example"), firewall.ReasonBadName, refusal.UnrecognizedName, "*.site.example"},
		{"leading hyphen", name("-a.site.example"), firewall.ReasonBadName, refusal.UnrecognizedName, "-a.site.example"},
		{"label of 64", name(strings.Repeat("a", 64) + ".site.example"), firewall.ReasonBadName, refusal.UnrecognizedName, strings.Repeat("a", 64) + ".site.example"},
		{"name of 300", name(strings.Repeat("a.", 144) + "site.example"), firewall.ReasonBadName, refusal.UnrecognizedName, strings.Repeat("a.", 48) + "a..."},
		// probe: S15
		{"ECH", testnet.Record(testnet.Message(good, testnet.NewExt(0xfe0d, []byte{0, 0}))), firewall.ReasonECH, refusal.AccessDenied, "site.example"},
		{"ECH before the name", testnet.Record(testnet.Message(testnet.NewExt(0xfe0d, nil), good)), firewall.ReasonECH, refusal.AccessDenied, "site.example"},
		{"encrypted SNI of the drafts", testnet.Record(testnet.Message(good, testnet.NewExt(0xffce, nil))), firewall.ReasonECH, refusal.AccessDenied, "site.example"},
		// probe: S4
		{"record over 16384", append([]byte{22, 3, 1, 0x40, 1}, make([]byte, 0x4001)...), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"empty record", append([]byte{22, 3, 1, 0, 0}, testnet.Record(testnet.Message(good))...), firewall.ReasonBadHello, refusal.DecodeError, ""},

		{"alert inside", append(append(testnet.CutRecords(testnet.Message(good)[:20], 20), 21, 3, 1, 0, 2, 1, 0), testnet.Record(testnet.Message(good)[20:])...), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"second hello in the record", testnet.Record(append(testnet.Message(good), testnet.Message(testnet.SNI("evil.example"))...)), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"another handshake message", testnet.Record(testnet.Handshake(2, make([]byte, 40))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		// probe: S3
		{"hello over the cap", testnet.Record(testnet.Padded("site.example", 65_530))[:20_000], firewall.ReasonLimit, refusal.DecodeError, ""},

		{"version 2.0 inside", testnet.Record(testnet.Handshake(1, append([]byte{2, 0}, testnet.Message(good)[6:]...))), firewall.ReasonBadHello, refusal.DecodeError, ""},
		{"too many extensions", testnet.Record(testnet.Message(append(manyExts(200), good)...)), firewall.ReasonBadHello, refusal.DecodeError, ""},
		// probe: S18
		{"SSLv2", []byte("\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10"), firewall.ReasonBadHello, 0, ""},
		{"HTTP", []byte("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n"), firewall.ReasonBadHello, 0, ""},
		// probe: S18, N9
		{"CONNECT", []byte("CONNECT site.example:443 HTTP/1.1\r\n\r\n"), firewall.ReasonBadHello, 0, ""},
		{"SOCKS5", []byte("\x05\x01\x00"), firewall.ReasonBadHello, 0, ""},
		// probe: S18
		{"SSH", []byte("SSH-2.0-OpenSSH_9.9\r\n"), firewall.ReasonBadHello, 0, ""},
		{"PROXY v1", append([]byte("PROXY TCP4 1.2.3.4 5.6.7.8 1 443\r\n"), name("site.example")...), firewall.ReasonBadHello, 0, ""},
		{"PROXY v2", append([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c"), make([]byte, 12)...), firewall.ReasonBadHello, 0, ""},
		{"alert first", []byte{21, 3, 1, 0, 2, 2, 0}, firewall.ReasonBadHello, 0, ""},
		// probe: S19
		{"nothing", nil, firewall.ReasonBadHello, 0, ""},
		{"half a hello", name("site.example")[:30], firewall.ReasonBadHello, 0, ""},
	}
	c := newCell(t, "strict", nil)
	k := testnet.NewCanary(t)
	c.Origin("127.0.0.1:443", k.Addr)
	control := func(n int) {
		t.Helper()
		client := testnet.Dial(t, c.tls)
		testnet.Send(t, client, testnet.Record(testnet.Message(good)))
		k.Next(t).Close()
		if r := c.Last(n); r.Verdict != firewall.Allow {
			t.Fatalf("control: %+v", r)
		}
	}
	control(1)
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := testnet.Dial(t, c.tls)
			testnet.Send(t, client, tt.raw)
			if err := client.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(client)
			var want []byte
			if tt.alert != 0 {
				want = tt.alert.Record()
			}
			if !bytes.Equal(got, want) || tt.alert != 0 && err != nil {
				t.Errorf("the client got %x, %v; want %x", got, err, want)
			}
			r := c.Last(i + 2)
			if r.Verdict != firewall.Deny || r.Reason != tt.reason || r.Host != tt.host || r.Upstream.IsValid() {
				t.Errorf("record %+v; want %s for %q", r, tt.reason, tt.host)
			}
		})
	}
	control(len(tests) + 2)
	if len(c.Dials()) != 2 || k.Count.Load() != 2 || c.Resolver.Asked.Load() != 2 {
		t.Errorf("%d dials, %d connections, %d look-ups; want 2 each, of the control",
			len(c.Dials()), k.Count.Load(), c.Resolver.Asked.Load())
	}
}

func manyExts(n int) []testnet.Ext {
	var all []testnet.Ext
	for i := range n {
		all = append(all, testnet.NewExt(uint16(0x8000+i), nil))
	}
	return all
}

// A policy may pass encrypted hellos, which are judged by their outer name.
//
// probe: S15
// oracle: the listener on the far side, which gets the hello with the allowed outer
// name and not the other; the records
func TestTunnelPassesECH(t *testing.T) {
	c := newCell(t, "hidden", nil)
	k := testnet.NewCanary(t)
	c.Origin("127.0.0.1:443", k.Addr)
	testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("site.example"), testnet.NewExt(0xfe0d, []byte{0}))))
	k.Next(t).Close()
	if r := c.Last(1); r.Verdict != firewall.Allow {
		t.Errorf("record %+v", r)
	}
	testnet.Send(t, testnet.Dial(t, c.tls), testnet.Record(testnet.Message(testnet.SNI("evil.example"), testnet.NewExt(0xfe0d, []byte{0}))))
	if r := c.Last(2); r.Reason != firewall.ReasonNotListed {
		t.Errorf("record %+v", r)
	}
}

// The deadline for a hello is absolute: neither silence nor drops of it last longer.
//
// probe: S19
// oracle: the end of the client's connection and the record
func TestTunnelHelloDeadline(t *testing.T) {
	testnet.NoLeak(t)
	tests := []struct {
		name string
		drip []byte
	}{
		{"silence", nil},
		{"drip", testnet.Record(testnet.Padded("site.example", 10_000))},
	}
	c := newCell(t, "strict", func(s *server) { s.HelloTimeout = 200 * time.Millisecond })
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			client := testnet.Dial(t, c.tls)
			go func() {
				for _, b := range tt.drip {
					if _, err := client.Write([]byte{b}); err != nil {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			}()
			start := time.Now()
			_, err := io.ReadAll(client)
			if d := time.Since(start); d > testnet.Patience/2 {
				t.Errorf("closed after %v (%v)", d, err)
			}
			if r := c.Last(i + 1); r.Reason != firewall.ReasonLimit {
				t.Errorf("record %+v", r)
			}
		})
	}
}

// The names, addresses and ports that the policy does not allow, and what
// becomes of an upstream that is not there.
//
// probe: R10
// oracle: the addresses that were dialled, in order, and the record
func TestTunnelAddresses(t *testing.T) {
	tests := []struct {
		name   string
		policy string
		host   string
		addrs  []string
		reason firewall.Reason
		dials  string
	}{
		{"private", "strict", "public.example", []string{"10.0.0.1"}, firewall.ReasonAddress, ""},
		{"loopback not admitted", "strict", "public.example", []string{"127.0.0.1"}, firewall.ReasonAddress, ""},
		// probe: R3
		{"one of two private", "strict", "public.example", []string{"1.1.1.1", "10.0.0.1"}, firewall.ReasonAddress, ""},
		// probe: R1
		{"metadata, though private is admitted", "strict", "site.example", []string{"169.254.169.254"}, firewall.ReasonAddress, ""},
		// probe: R2
		{"mapped", "strict", "site.example", []string{"::ffff:127.0.0.1"}, firewall.ReasonAddress, ""},
		// probe: R10
		{"empty answer", "strict", "site.example", nil, firewall.ReasonAddress, ""},
		{"too many", "strict", "public.example", manyAddrs(65), firewall.ReasonAddress, ""},
		{"unresolved", "strict", "www.site.example", nil, firewall.ReasonResolve, ""},
		{"not there", "strict", "site.example", []string{"127.0.0.9"}, firewall.ReasonDial, "127.0.0.9:443"},
		// probe: R5
		{"next address", "strict", "site.example", []string{"127.0.0.9", "127.0.0.1"}, firewall.ReasonListed, "127.0.0.9:443 127.0.0.1:443"},
		{"families in turn", "strict", "public.example", []string{"1.1.1.1", "1.1.1.2", "2606:4700::1"}, firewall.ReasonDial, "[2606:4700::1]:443 1.1.1.1:443 1.1.1.2:443"},
		{"bounded tries", "strict", "public.example", manyAddrs(20), firewall.ReasonDial, "1.1.1.1:443 1.1.1.2:443 1.1.1.3:443 1.1.1.4:443"},
		{"open, unlisted", "open", "any.example", []string{"1.1.1.1"}, firewall.ReasonDial, "1.1.1.1:443"},
		{"open, private", "open", "any.example", []string{"192.168.1.1"}, firewall.ReasonAddress, ""},
		{"open, floor name", "open", "metadata.google.internal", []string{"1.1.1.1"}, firewall.ReasonFloorName, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCell(t, tt.policy, nil)
			k := testnet.NewCanary(t)
			c.Origin("127.0.0.1:443", k.Addr)
			if tt.reason != firewall.ReasonResolve {
				c.Resolver.Set(tt.host, tt.addrs...)
			}
			client := testnet.Dial(t, c.tls)
			testnet.Send(t, client, testnet.Record(testnet.Message(testnet.SNI(tt.host))))
			if tt.reason == firewall.ReasonListed {
				k.Next(t).Close()
			} else if got, _ := io.ReadAll(client); len(got) != 7 {
				t.Errorf("the client got %x, want an alert", got)
			}
			r := c.Last(1)
			if r.Reason != tt.reason || (r.Verdict == firewall.Allow) != (tt.reason == firewall.ReasonListed) {
				t.Errorf("record %+v", r)
			}
			var dialled []string
			for _, d := range c.Dials() {
				dialled = append(dialled, d.String())
			}
			if got := strings.Join(dialled, " "); got != tt.dials {
				t.Errorf("dialled %q, want %q", got, tt.dials)
			}
		})
	}
}

func manyAddrs(n int) []string {
	var all []string
	for a := netip.MustParseAddr("1.1.1.1"); len(all) < n; a = a.Next() {
		all = append(all, a.String())
	}
	return all
}
