// Package probe tries, from inside a sandbox, what must not succeed there, and
// reports what did. Run is the inner side; Canary is the outer one, a listener
// that tells what has reached it, since a datagram can arrive without the sender
// learning of it: only where neither side saw anything is a way closed.
//
// A probe's word alone is not proof of a closed way either: a dead network refuses
// everything. Pair each with a positive control.
package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Limits of a Request.
const (
	// MaxProbes is the most probes in a request, MaxRequest its most bytes.
	MaxProbes  = 256
	MaxRequest = 1 << 20
	// MaxDetail bounds Result.Detail in bytes.
	MaxDetail = 512
	// MaxPayload bounds what a CanaryHit repeats of a payload, in bytes.
	MaxPayload = 128

	defaultTimeout = 2 * time.Second
	maxTimeout     = 30 * time.Second
	// concurrency is how many probes are made at a time. Most take no time, so that
	// this is how many may wait together for an answer that does not come.
	concurrency = 64
)

// A Request is what Run reads.
type Request struct {
	Probes []Probe `json:"probes"`
}

// A Kind says what a probe tries.
type Kind string

// The kinds. "Address" is host:port unless said otherwise.
const (
	// TCP connects to Address. With a payload, which it sends, only an answer
	// counts as reached: something in between may accept anything.
	TCP Kind = "tcp"
	// UDP sends the payload to Address and waits for an answer.
	UDP Kind = "udp"
	// TCPDontRoute and UDPDontRoute do the same past the routing table, bound to
	// each device in turn.
	TCPDontRoute Kind = "tcp-dontroute"
	UDPDontRoute Kind = "udp-dontroute"
	// UDPBroadcast sends to the port of Address on 255.255.255.255 and on every
	// network's broadcast address, UDPMulticast on 224.0.0.1, by every device.
	UDPBroadcast Kind = "udp-broadcast"
	UDPMulticast Kind = "udp-multicast"
	// IPv6 sends by UDP and connects by TCP to Address and, on every device, to
	// the port of Address on the link's all-nodes address ff02::1.
	IPv6 Kind = "ipv6"
	// DNS and DNSTCP ask the server at Address for the addresses of ServerName;
	// any answer counts, and Detail has its code and addresses.
	DNS    Kind = "dns"
	DNSTCP Kind = "dns-tcp"
	// TLS sends a hello for ServerName to Address; the server's handshake counts,
	// an alert or a closed connection does not.
	TLS Kind = "tls"
	// HTTP asks Address for /Payload of the host ServerName; any response counts,
	// and Detail has its status.
	HTTP Kind = "http"
	// ICMP sends an echo request to Address, an IP address, by a ping socket.
	ICMP Kind = "icmp"

	// The rest have no address and count as reached where the kernel allows the
	// operation, which is taken back at once.
	RawSocket    Kind = "raw-socket"
	PacketSocket Kind = "packet-socket"
	// SocketFamilies tries every family but unix, IPv4, IPv6 and netlink: some, such
	// as vsock, know no network namespaces.
	SocketFamilies Kind = "socket-families"
	SocketPairs    Kind = "socket-pairs" // of every family but unix
	SocketTypes    Kind = "socket-types" // of IPv4, IPv6 and netlink, but TCP, UDP and routes
	NetAdmin       Kind = "net-admin"    // change a network device
	NFTables       Kind = "nftables"     // read the packet filter
	Mount          Kind = "mount"
	Unshare        Kind = "unshare" // a new user, network, mount or process namespace
	SetUID         Kind = "setuid"
	Mknod          Kind = "mknod"
	Chroot         Kind = "chroot"
	PtracePID1     Kind = "ptrace-pid1" // read memory, environment or descriptors of PID 1
	LimitsPID1     Kind = "limits-pid1" // set a resource limit of PID 1
	CoreLimit      Kind = "core-limit"  // have a handler of the host's started for a process that dies
	Keyctl         Kind = "keyctl"
	BPF            Kind = "bpf"
	Perf           Kind = "perf"
	Userfaultfd    Kind = "userfaultfd"
	IOUring        Kind = "io-uring"
	OpenByHandle   Kind = "open-by-handle"

	// Facts never counts as reached; it fills Result.Self.
	Facts Kind = "self"
)

// A Probe is one thing to try.
type Probe struct {
	// ID is repeated in the result.
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
	// Address, Payload and ServerName mean what the kind says. The payload should
	// hold a token by which the canary knows the probe.
	Address    string `json:"address,omitempty"`
	Payload    string `json:"payload,omitempty"`
	ServerName string `json:"serverName,omitempty"`
	// TimeoutMS bounds the probe in ms; 0 means 2000, and 30000 is the most.
	TimeoutMS int `json:"timeoutMs,omitempty"`
}

// A Result is what became of a probe.
type Result struct {
	ID      string `json:"id"`
	Reached bool   `json:"reached"`
	// Detail is for people: an address, a status, or the kernel's refusal.
	Detail string `json:"detail"`
	// Millis is how long the probe took, in ms: a refusal should take no time.
	Millis int64 `json:"millis"`
	Self   *Self `json:"self,omitempty"`
}

// A CanaryLine is a line of a canary; one of its fields is set.
type CanaryLine struct {
	Hello  *CanaryHello `json:"hello,omitempty"` // in the first line
	Hit    *CanaryHit   `json:"hit,omitempty"`
	Result *Result      `json:"result,omitempty"`
}

// A CanaryHello says where a canary listens.
type CanaryHello struct {
	// Port is the one port on which it listens, by TCP and UDP.
	Port int `json:"port"`
	// Addresses are those of all devices but the loopback's.
	Addresses []netip.Addr `json:"addresses"`
	Tables    Tables       `json:"tables"`
}

// Tables are what the host's kernel has one of for all containers; 0 for what it does
// not tell, which in another network namespace than the host's is all.
type Tables struct {
	// TCPBytes are those of the buffers of TCP connections from which on the kernel
	// presses all of them: the second number of tcp_mem (tcp(7)).
	TCPBytes int64 `json:"tcpBytes"`
	// Connections are as many as it can track (nf_conntrack_max).
	Connections int64 `json:"connections"`
}

// A CanaryHit is one thing that reached a canary.
type CanaryHit struct {
	Proto   string         `json:"proto"` // tcp or udp
	From    netip.AddrPort `json:"from"`
	Payload string         `json:"payload"`
}

// An outcome is what a kind's function reports.
type outcome struct {
	reached bool
	detail  string
	self    *Self
}

// tries has the function of each kind. The context ends at the probe's deadline. It is no
// variable, which a program that knows the kinds alone would link with all it leads to.
func tries() map[Kind]func(context.Context, Probe) outcome {
	return map[Kind]func(context.Context, Probe) outcome{
		TCP: tryTCP, UDP: tryUDP, TLS: tryTLS, HTTP: tryHTTP, DNS: tryDNS, DNSTCP: tryDNS, ICMP: tryICMP,
		TCPDontRoute: tryTCPDontRoute, UDPDontRoute: tryUDPDontRoute,
		UDPBroadcast: tryBroadcast, UDPMulticast: tryMulticast, IPv6: tryIPv6,
		RawSocket: kernel(rawSocket), PacketSocket: kernel(packetSocket), SocketFamilies: kernelSays(socketFamilies),
		SocketPairs: kernelSays(socketPairs), SocketTypes: kernelSays(socketTypes), NetAdmin: kernel(netAdmin),
		NFTables: kernel(nftables), Mount: kernel(mount), Unshare: kernel(unshare), SetUID: kernel(setUID),
		Mknod: kernel(mknod), Chroot: kernel(chroot), PtracePID1: kernel(ptracePID1),
		LimitsPID1: kernel(limitsPID1), CoreLimit: kernelSays(coreLimit), Keyctl: kernel(keyctl),
		BPF: kernel(bpf), Perf: kernel(perf), Userfaultfd: kernel(userfaultfd), IOUring: kernel(ioUring),
		OpenByHandle: kernel(openByHandle),
		Facts:        func(context.Context, Probe) outcome { return outcome{self: readSelf()} },
	}
}

// Run reads a Request from stdin, tries all of it, some at a time, and writes each
// Result as a line of JSON, in the order in which they end.
func Run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	request, err := parse(json.NewDecoder(io.LimitReader(stdin, MaxRequest)))
	if err != nil {
		return err
	}
	lines := json.NewEncoder(stdout)
	return request.try(ctx, func(r Result) error { return lines.Encode(r) })
}

// try makes all probes, some at a time, and passes on their results, one at a time.
func (request Request) try(ctx context.Context, write func(Result) error) error {
	var (
		all  sync.WaitGroup
		turn = make(chan struct{}, concurrency)
		mu   sync.Mutex // guards bad, and is held while a result is written
		bad  error
	)
	for _, p := range request.Probes {
		all.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			result := Try(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			if err := write(result); err != nil && bad == nil {
				bad = fmt.Errorf("write a result: %w", err)
			}
		})
	}
	all.Wait()
	return bad
}

func parse(d *json.Decoder) (Request, error) {
	d.DisallowUnknownFields()
	var request Request
	if err := d.Decode(&request); err != nil {
		return Request{}, fmt.Errorf("decode the request: %w", err)
	}
	if n := len(request.Probes); n == 0 || n > MaxProbes {
		return Request{}, fmt.Errorf("%d probes, not 1 to %d", n, MaxProbes)
	}
	ids, known := make(map[string]bool), tries()
	for _, p := range request.Probes {
		if known[p.Kind] == nil {
			return Request{}, fmt.Errorf("probe %q has the unknown kind %q", p.ID, p.Kind)
		}
		if p.ID == "" || ids[p.ID] {
			return Request{}, fmt.Errorf("probe id %q is empty or there twice", p.ID)
		}
		ids[p.ID] = true
	}
	return request, nil
}

// Try does one probe.
func Try(ctx context.Context, p Probe) Result {
	timeout := defaultTimeout
	if p.TimeoutMS > 0 {
		timeout = min(time.Duration(p.TimeoutMS)*time.Millisecond, maxTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begin := time.Now()
	o := outcome{detail: fmt.Sprintf("unknown kind %q", p.Kind)}
	if try := tries()[p.Kind]; try != nil {
		o = try(ctx, p)
	}
	return Result{
		ID: p.ID, Reached: o.reached, Detail: clip(o.detail), Self: o.self,
		Millis: time.Since(begin).Milliseconds(),
	}
}

func clip(s string) string {
	s = strings.ReplaceAll(s, "\n", "; ")
	if len(s) > MaxDetail {
		return s[:MaxDetail]
	}
	return s
}

// refused is the outcome of an error.
func refused(err error) outcome { return outcome{detail: err.Error()} }

// attempt is one of the ways that a probe tries.
type attempt struct {
	name string
	do   func() outcome
}

// every makes all attempts, each with its share of the time; one that reached is
// enough.
func every(attempts []attempt) outcome {
	if len(attempts) == 0 {
		return refused(errors.New("nothing to try: no such device or address"))
	}
	var sum outcome
	for _, a := range attempts {
		o := a.do()
		sum.reached = sum.reached || o.reached
		if sum.detail != "" {
			sum.detail += "; "
		}
		sum.detail += a.name + ": " + o.detail
	}
	return sum
}
