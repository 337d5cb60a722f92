package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// The test binary is also the process that probes, by this variable.
const stageVar = "SALLYPORT_TEST_STAGE"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Nothing {
		return
	}
	if os.Getenv(stageVar) == "" {
		os.Exit(m.Run())
	}
	if err := Run(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveTCP accepts connections on loopback and handles each until the test ends.
func serveTCP(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			handle(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return l.Addr().String()
}

func serveUDP(t *testing.T, answer func([]byte) []byte) string {
	t.Helper()
	p, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 2048)
		for {
			n, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			if b := answer(buf[:n]); b != nil {
				p.WriteTo(b, from)
			}
		}
	}()
	t.Cleanup(func() {
		p.Close()
		<-ended
	})
	return p.LocalAddr().String()
}

func echoConn(c net.Conn) {
	buf := make([]byte, 2048)
	n, _ := c.Read(buf)
	c.Write(buf[:n])
}

func hangUp(net.Conn) {}

// closedPort is an address where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// tlsServer serves one certificate for every name but "refused.example".
func tlsServer(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "origin"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if h.ServerName == "refused.example" {
			return nil, errors.New("refused")
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
	}}
	return serveTCP(t, func(c net.Conn) {
		s := tls.Server(c, config)
		if s.Handshake() == nil {
			io.Copy(io.Discard, s)
		}
	})
}

// answerDNS answers a query for "name.example." and says NXDOMAIN to others.
func answerDNS(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RCode: dnsmessage.RCodeNameError}, Questions: []dnsmessage.Question{q}}
	if q.Name.String() == "name.example." {
		m.RCode = dnsmessage.RCodeSuccess
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
			Body: &dnsmessage.AResource{A: [4]byte{192, 0, 2, 7}}}}
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

func TestNetworkKinds(t *testing.T) {
	echoTCP, echoUDP := serveTCP(t, echoConn), serveUDP(t, func(b []byte) []byte { return b })
	silentTCP, silentUDP := serveTCP(t, hangUp), serveUDP(t, func([]byte) []byte { return nil })
	nobody := closedPort(t)
	secure := tlsServer(t)
	web := serveTCP(t, func(c net.Conn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		if line == "GET /token HTTP/1.1\r\n" {
			io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n")
		}
	})
	dns := serveUDP(t, answerDNS)
	dnsTCP := serveTCP(t, func(c net.Conn) {
		buf := make([]byte, 514)
		n, _ := io.ReadAtLeast(c, buf, 12)
		a := answerDNS(buf[2:n])
		c.Write(append([]byte{byte(len(a) >> 8), byte(len(a))}, a...))
	})
	tests := []struct {
		probe   Probe
		reached bool
		detail  string // a part of it
	}{
		{Probe{Kind: TCP, Address: echoTCP, Payload: "token"}, true, `answered "token"`},
		{Probe{Kind: TCP, Address: echoTCP}, true, "connected"},
		{Probe{Kind: TCP, Address: silentTCP, Payload: "token"}, false, "no answer"},
		{Probe{Kind: TCP, Address: nobody}, false, "refused"},
		{Probe{Kind: TCP, Address: "nonsense"}, false, "missing port"},
		{Probe{Kind: UDP, Address: echoUDP, Payload: "token"}, true, `answered "token"`},
		{Probe{Kind: UDP, Address: silentUDP, Payload: "token"}, false, "no answer"},
		{Probe{Kind: UDP, Address: nobody, Payload: "token"}, false, "refused"},
		{Probe{Kind: TLS, Address: secure, ServerName: "a.example"}, true, `certificate of "origin"`},
		{Probe{Kind: TLS, Address: secure, ServerName: "refused.example"}, false, "error"},
		{Probe{Kind: TLS, Address: silentTCP, ServerName: "a.example"}, false, ""},
		{Probe{Kind: TLS, Address: echoTCP, ServerName: "a.example"}, false, ""}, // its own hello comes back
		{Probe{Kind: HTTP, Address: web, ServerName: "a.example", Payload: "token"}, true, "403 Forbidden"},
		{Probe{Kind: HTTP, Address: silentTCP, ServerName: "a.example"}, false, "no response"},
		{Probe{Kind: HTTP, Address: web, ServerName: "a\r\nX: b"}, false, "space"},
		{Probe{Kind: DNS, Address: dns, ServerName: "name.example"}, true, "Success [192.0.2.7]"},
		{Probe{Kind: DNS, Address: dns, ServerName: "other.example."}, true, "NameError []"},
		{Probe{Kind: DNS, Address: silentUDP, ServerName: "name.example"}, false, "no answer"},
		{Probe{Kind: DNS, Address: echoUDP, ServerName: "name.example"}, false, "another question"},
		{Probe{Kind: DNSTCP, Address: dnsTCP, ServerName: "name.example"}, true, "Success [192.0.2.7]"},
		{Probe{Kind: DNSTCP, Address: silentTCP, ServerName: "name.example"}, false, "no answer"},
		{Probe{Kind: ICMP, Address: "name.example"}, false, "not an IPv4 address"},
		{Probe{Kind: "nosuch"}, false, "unknown kind"},
	}
	for i, tt := range tests {
		t.Run(fmt.Sprintf("%d %s", i, tt.probe.Kind), func(t *testing.T) {
			t.Parallel()
			tt.probe.ID = "x"
			tt.probe.TimeoutMS = 10_000
			if strings.Contains(tt.detail, "no answer") && tt.probe.Address == silentUDP {
				tt.probe.TimeoutMS = 100 // what must pass
			}
			got := Try(t.Context(), tt.probe)
			if got.ID != "x" || got.Reached != tt.reached || !strings.Contains(got.Detail, tt.detail) {
				t.Errorf("%+v: %+v, want %v with %q", tt.probe, got, tt.reached, tt.detail)
			}
		})
	}
}

// tryAs runs probes in a process of its own.
func tryAs(t *testing.T, cmd *exec.Cmd, probes ...Probe) map[string]Result {
	t.Helper()
	for i := range probes {
		probes[i].ID = string(probes[i].Kind)
	}
	request, err := json.Marshal(Request{Probes: probes})
	if err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	cmd.Env = append(cmd.Env, stageVar+"=1", "SECRET=hidden")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &out, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	results := make(map[string]Result)
	for line := range strings.Lines(out.String()) {
		var r Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		results[r.ID] = r
	}
	if len(results) != len(probes) {
		t.Fatalf("%d results of %d probes", len(results), len(probes))
	}
	return results
}

// privileged are the kinds that need privileges, which these tests have when they
// run as root.
var privileged = []Kind{RawSocket, PacketSocket, NetAdmin, NFTables, Mount, SetUID, Mknod, Chroot, OpenByHandle, LimitsPID1}

// unfiltered are the kinds that the kernel allows to anybody whose system calls pass no filter.
var unfiltered = []Kind{SocketPairs, SocketTypes, CoreLimit}

func TestKernelKinds(t *testing.T) {
	probes := func() []Probe {
		var all []Probe
		for _, k := range slices.Concat(privileged, unfiltered, []Kind{Unshare, SocketFamilies, PtracePID1, Keyctl, BPF, Perf, Userfaultfd, IOUring}) {
			all = append(all, Probe{Kind: k})
		}
		return all
	}
	cmd := exec.Command("/proc/self/exe")
	if os.Getuid() == 0 {
		for _, r := range tryAs(t, exec.Command("/proc/self/exe"), probes()...) {
			if !r.Reached && slices.Contains(privileged, Kind(r.ID)) {
				t.Errorf("control: root may not %s: %s", r.ID, r.Detail)
			}
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 10001, Gid: 10001}}
	}
	for _, r := range tryAs(t, cmd, probes()...) {
		if r.Reached && slices.Contains(privileged, Kind(r.ID)) {
			t.Errorf("without privileges %s is possible", r.ID)
		}
		if !r.Reached && slices.Contains(unfiltered, Kind(r.ID)) {
			t.Errorf("control: without a filter nobody may %s: %s", r.ID, r.Detail)
		}
		if r.Detail == "" {
			t.Errorf("%s says nothing", r.ID)
		}
	}
}

// ownDescriptors keeps from programs that the test starts what it has itself been given
// by who started it.
func ownDescriptors(t *testing.T) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

func TestFacts(t *testing.T) {
	ownDescriptors(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.ExtraFiles = []*os.File{r}
	got := tryAs(t, cmd, Probe{Kind: Facts})[string(Facts)]
	if got.Reached || got.Self == nil {
		t.Fatalf("%+v", got)
	}
	s := got.Self
	if s.UID != os.Getuid() || s.GID != os.Getgid() || s.PID == 0 || s.Processes == 0 || s.Hostname == "" {
		t.Errorf("%+v", s)
	}
	if !slices.Contains(s.EnvNames, "SECRET") || strings.Contains(fmt.Sprint(*s), "hidden") {
		t.Errorf("environment %q: names only, and all", s.EnvNames)
	}
	if !slices.Equal(s.FDs[:min(4, len(s.FDs))], []int{0, 1, 2, 3}) {
		t.Errorf("descriptors %v, one more than 0 to 2 is open", s.FDs)
	}
	less := tryAs(t, exec.Command("/proc/self/exe"), Probe{Kind: Facts})[string(Facts)].Self
	if slices.Contains(less.FDs, 3) {
		t.Errorf("descriptors %v, of which 3 is our own", less.FDs)
	}
	for _, set := range []string{s.CapInh, s.CapPrm, s.CapEff, s.CapBnd, s.CapAmb} {
		if len(set) != 16 {
			t.Errorf("capability set %q", set)
		}
	}
	if !slices.ContainsFunc(s.Mounts, func(m string) bool { return strings.HasPrefix(m, "/proc proc ") }) {
		t.Errorf("mounts %q", s.Mounts)
	}
	if os.Getuid() == 0 && (!s.RootWritable || strings.Trim(s.CapEff, "0") == "") {
		t.Errorf("as root: %+v", s)
	}
}

func TestRunRefuses(t *testing.T) {
	one := `{"id":"a","kind":"tcp"}`
	tests := []struct{ in, want string }{
		{"", "EOF"},
		{"nonsense", "invalid character"},
		{`{"probes":[]}`, "0 probes"},
		{`{"probes":[` + strings.Repeat(one+",", MaxProbes) + one + `]}`, "257 probes"},
		{`{"probes":[` + one + `,` + one + `]}`, "there twice"},
		{`{"probes":[{"kind":"tcp"}]}`, "empty"},
		{`{"probes":[{"id":"a","kind":"teleport"}]}`, "unknown kind"},
		{`{"probes":[{"id":"a","kind":"tcp","port":1}]}`, "unknown field"},
		{`{"probes":[{"id":"` + strings.Repeat("x", MaxRequest) + `"}]}`, "unexpected EOF"},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		err := Run(t.Context(), strings.NewReader(tt.in), &out)
		if err == nil || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
			t.Errorf("%.60s: %v, %q; want an error with %q", tt.in, err, out.String(), tt.want)
		}
	}
}

func TestCanary(t *testing.T) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := Canary(t.Context(), inR, outW)
		outW.Close()
		ended <- err
	}()
	lines := json.NewDecoder(outR)
	var first CanaryLine
	if err := lines.Decode(&first); err != nil || first.Hello == nil || first.Hello.Port == 0 || first.Hello.Addresses == nil {
		t.Fatalf("%+v, %v", first, err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", first.Hello.Port)
	long := strings.Repeat("x", 1000)
	results := make(chan Result, 4)
	for _, p := range []Probe{
		{ID: "udp", Kind: UDP, Address: at, Payload: "udp token"},
		{ID: "tcp", Kind: TCP, Address: at, Payload: "tcp token"},
		{ID: "long", Kind: UDP, Address: at, Payload: long},
		{ID: "connect", Kind: TCP, Address: at},
	} {
		go func() { results <- Try(context.Background(), p) }()
	}
	want := map[string]bool{"udp udp token": true, "tcp tcp token": true, "udp " + long[:MaxPayload]: true, "tcp ": true}
	for range 4 {
		var line CanaryLine
		if err := lines.Decode(&line); err != nil || line.Hit == nil {
			t.Fatalf("%+v, %v", line, err)
		}
		hit := *line.Hit
		if key := hit.Proto + " " + hit.Payload; !want[key] || !hit.From.Addr().IsLoopback() {
			t.Errorf("unexpected hit %+v", hit)
		} else {
			delete(want, key)
		}
	}
	for range 4 {
		if r := <-results; !r.Reached {
			t.Errorf("%+v", r)
		}
	}
	hearsItself(t, inW, lines, at)
	idle, err := net.Dial("tcp", at) // must not keep the canary
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	inW.Close()
	go io.Copy(io.Discard, outR)
	if err := <-ended; err != nil {
		t.Errorf("Canary: %v", err)
	}
	if r := Try(t.Context(), Probe{Kind: TCP, Address: at}); r.Reached {
		t.Errorf("it still listens: %+v", r)
	}
}

// hearsItself has a canary make probes of itself, request after request.
func hearsItself(t *testing.T, stdin io.Writer, lines *json.Decoder, at string) {
	t.Helper()
	for _, id := range []string{"first", "second"} {
		go json.NewEncoder(stdin).Encode(Request{Probes: []Probe{{ID: id, Kind: UDP, Address: at, Payload: id}}})
		var hit, result bool
		for range 2 {
			var line CanaryLine
			if err := lines.Decode(&line); err != nil {
				t.Fatal(err)
			}
			hit = hit || line.Hit != nil && line.Hit.Payload == id
			result = result || line.Result != nil && line.Result.ID == id && line.Result.Reached
		}
		if !hit || !result {
			t.Errorf("%s request: heard %v, said so %v", id, hit, result)
		}
	}
}

// TestCanaryTakesNoNonsense: a request that cannot be read ends it, and says why.
func TestCanaryTakesNoNonsense(t *testing.T) {
	err := Canary(t.Context(), strings.NewReader(`{"probes":[{"id":"a","kind":"teleport"}]}`), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "unknown kind") {
		t.Errorf("%v", err)
	}
}

func TestDetailIsBounded(t *testing.T) {
	r := Try(t.Context(), Probe{Kind: TCP, Address: strings.Repeat("x", 5000)})
	if len(r.Detail) > MaxDetail {
		t.Errorf("%d bytes of detail", len(r.Detail))
	}
}

// FuzzDescribeAnswer: an answer may be anything. Its description is plain text and
// leaves out no address that another reader finds.
func FuzzDescribeAnswer(f *testing.F) {
	query, err := buildQuery("name.example")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(answerDNS(query))
	f.Add([]byte{0x5a, 0x11, 0x80, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0xc0, 12})
	f.Fuzz(func(t *testing.T, b []byte) {
		detail, err := describeAnswer(b)
		if err != nil {
			return
		}
		if detail == "" || strings.ContainsFunc(detail, func(c rune) bool { return c < ' ' || c > '~' }) {
			t.Errorf("the description is %q", detail)
		}
		other := new(dns.Msg)
		if other.Unpack(b) != nil {
			return // the other reader is stricter
		}
		for _, rr := range other.Answer {
			if a, ok := rr.(*dns.A); ok && len(a.A) > 0 && !strings.Contains(detail, a.A.String()) {
				t.Errorf("%q lacks the address of %v", detail, rr)
			}
		}
	})
}
