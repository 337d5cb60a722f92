// Package probe tries, from inside a sandbox, what must not succeed there, and
// reports what did. Run is the inner side; Canary is the outer one, a listener
// that tells what has reached it, since a datagram can arrive without the sender
// learning of it: only where neither side saw anything is a way closed.
//
// A probe's word alone is not proof of a closed way either: a dead network refuses
// everything. Pair each with a positive control.
package probe

import (
	"net/netip"
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
