package boundary

import (
	"fmt"
	"net/netip"
	"strconv"

	"sallyport/entrypoint/probe"
)

// An attempt is one probe and the finding to which it belongs.
type attempt struct {
	finding string
	probe   probe.Probe
	// verdict says what is wrong with a result, or "". If nil, the probe must not
	// have reached anything.
	verdict func(probe.Result) string
	// control says that a wrong result is not a way out but a check that proves
	// nothing.
	control bool
}

// A plan is all that is tried, by where it is tried from.
type plan struct {
	here   []attempt // from inside the cell
	beside []attempt // from the canary in the other cell: controls
	onHost []attempt // from the host: controls
	// names are what the plan asks the gate of the own cell, and must find in its
	// receipt; foreign those it asks the other cell's gate.
	names, foreign []string
	// These begin the payloads, and the identifiers, of attempts and of controls.
	attemptToken, controlToken string
}

// The addresses outside of any cell that are tried: documentation ranges (RFC
// 5737), which are nobody's.
var outside = []string{"198.51.100.1", "203.0.113.1"}

// outsidePorts are those that a program would try first, by TCP; UDP: 53, 123, 443.
var (
	outsidePorts   = []int{22, 25, 53, 80, 443, 853, 8443}
	outsideUDP     = []int{53, 123, 443}
	gateOtherPorts = []int{22, 853, 2112, 6060, 7280, 8080, 8443, 9090}
	gateOtherUDP   = []int{123, 443, 853, 5353}
)

// timeoutMS is the time of one probe: what is closed refuses at once, what is open
// answers at once, and only what vanishes takes this long.
const timeoutMS = 1500

// plan lists what to try, now that everything listens.
func (r *rig) plan() *plan {
	p := &plan{
		attemptToken: "boundary-" + r.nonce + "-attempt-",
		controlToken: "boundary-" + r.nonce + "-control-",
	}
	p.ownGate(r)
	p.host(r)
	p.otherCell(r)
	p.outside(r)
	p.kernel()
	return p
}

// try adds an attempt from inside the cell.
func (p *plan) try(finding string, kind probe.Kind, address string) {
	p.tryName(finding, kind, address, "", nil)
}

func (p *plan) tryName(finding string, kind probe.Kind, address, name string, verdict func(probe.Result) string) {
	id := p.attemptToken + strconv.Itoa(len(p.here))
	a := attempt{finding: finding, verdict: verdict, probe: probe.Probe{
		ID: id, Kind: kind, Address: address, ServerName: name, TimeoutMS: timeoutMS,
	}}
	switch kind {
	case probe.DNS, probe.DNSTCP, probe.TLS, probe.HTTP:
	default:
		a.probe.Payload = id
	}
	p.here = append(p.here, a)
}

// connect adds an attempt that counts as soon as a connection is made.
func (p *plan) connect(finding, address string) {
	p.try(finding, probe.TCP, address)
	p.here[len(p.here)-1].probe.Payload = ""
}

// control adds a control to a list: it must reach what it tries.
func (p *plan) control(list []attempt, kind probe.Kind, address string) []attempt {
	id := p.controlToken + strconv.Itoa(len(p.here)+len(p.beside)+len(p.onHost))
	return append(list, attempt{finding: "control", control: true, verdict: mustReach, probe: probe.Probe{
		ID: id, Kind: kind, Address: address, Payload: id, TimeoutMS: timeoutMS,
	}})
}

func mustReach(r probe.Result) string {
	if !r.Reached {
		return "should have been reached: " + r.Detail
	}
	return ""
}

// ownGate asks the gate of the own cell for what it must refuse, and finds that it
// is there.
func (p *plan) ownGate(r *rig) {
	gate := r.here.cell.Gate
	at := func(port int) string { return hostPort(gate, port) }
	for _, port := range []int{53, 80, 443} {
		p.here = p.control(p.here, probe.TCP, at(port))
		p.here[len(p.here)-1].probe.Payload = ""
	}
	ask := func(finding string, kind probe.Kind, label string) {
		name := r.name(label)
		p.names = append(p.names, name)
		p.tryName(finding, kind, at(53), name, noSuchName)
	}
	ask("gate refuses unlisted names (dns)", probe.DNS, "udp")
	ask("gate refuses unlisted names (dns)", probe.DNSTCP, "tcp")
	for _, name := range []string{"host.docker.internal", "gateway.docker.internal", "metadata.google.internal"} {
		p.tryName("gate refuses internal names (dns)", probe.DNS, at(53), name, noSuchName)
	}
	unlisted := r.name("tls")
	p.names = append(p.names, unlisted)
	p.tryName("gate refuses unlisted names (tls)", probe.TLS, at(443), unlisted, nil)
	p.tryName("gate refuses tls without a name", probe.TLS, at(443), "", nil)
	unlisted = r.name("http")
	p.names = append(p.names, unlisted)
	p.tryName("gate refuses unlisted names (http)", probe.HTTP, at(80), unlisted, forbidden)
	for _, port := range gateOtherPorts {
		p.connect("gate has no other port (tcp)", at(port))
	}
	for _, port := range gateOtherUDP {
		p.try("gate has no other port (udp)", probe.UDP, at(port))
	}
	p.try("icmp to the gate", probe.ICMP, gate.String())
}

// host tries the canary on the host by every address of the host.
func (p *plan) host(r *rig) {
	port := r.onHost.hello.Port
	var any6 string
	for _, a := range r.onHost.hello.Addresses {
		if a.Is6() {
			target := a
			if a.Zone() != "" {
				target = a.WithZone("eth0") // its own device has another name in there
			}
			any6 = hostPort(target, port)
			p.try("host listener (ipv6)", probe.IPv6, any6)
			continue
		}
		address := hostPort(a, port)
		p.onHost = p.control(p.onHost, probe.TCP, address)
		p.onHost = p.control(p.onHost, probe.UDP, address)
		p.try("host listener (tcp)", probe.TCP, address)
		p.try("host listener (udp)", probe.UDP, address)
		p.try("host listener (tcp, past the routes)", probe.TCPDontRoute, address)
		p.try("host listener (udp, past the routes)", probe.UDPDontRoute, address)
		p.try("icmp to the host", probe.ICMP, a.String())
	}
	loopback := hostPort(netip.IPv6Loopback(), port)
	if any6 == "" { // the all-nodes address is tried even so
		p.try("host listener (ipv6)", probe.IPv6, loopback)
	} else {
		p.onHost = p.control(p.onHost, probe.TCP, loopback)
	}
	p.try("host listener (broadcast)", probe.UDPBroadcast, hostPort(netip.AddrFrom4([4]byte{255, 255, 255, 255}), port))
	p.try("host listener (multicast)", probe.UDPMulticast, hostPort(netip.AddrFrom4([4]byte{224, 0, 0, 1}), port))
}

// otherCell tries the sandbox in the other cell and the gate's address there.
func (p *plan) otherCell(r *rig) {
	port := r.there.canary.hello.Port
	for _, a := range []netip.Addr{r.there.cell.Sandbox, netip.AddrFrom4([4]byte{127, 0, 0, 1})} {
		p.beside = p.control(p.beside, probe.TCP, hostPort(a, port))
		p.beside = p.control(p.beside, probe.UDP, hostPort(a, port))
	}
	p.beside = p.control(p.beside, probe.TCP, hostPort(r.there.cell.Gate, 443))
	p.beside[len(p.beside)-1].probe.Payload = ""

	sandbox, gate := r.there.cell.Sandbox, r.there.cell.Gate
	p.try("other sandbox (tcp)", probe.TCP, hostPort(sandbox, port))
	p.try("other sandbox (udp)", probe.UDP, hostPort(sandbox, port))
	p.try("other sandbox (past the routes)", probe.TCPDontRoute, hostPort(sandbox, port))
	p.try("other sandbox (past the routes)", probe.UDPDontRoute, hostPort(sandbox, port))
	p.try("icmp to another cell", probe.ICMP, sandbox.String())
	p.try("icmp to another cell", probe.ICMP, gate.String())
	for _, kind := range []probe.Kind{probe.DNS, probe.DNSTCP} {
		name := r.name("foreign-" + string(kind))
		p.foreign = append(p.foreign, name)
		p.tryName("gate in another cell (dns)", kind, hostPort(gate, 53), name, nil)
	}
	for _, port := range []int{53, 80, 443} {
		p.connect("gate in another cell (tcp)", hostPort(gate, port))
		p.try("gate in another cell (past the routes)", probe.TCPDontRoute, hostPort(gate, port))
	}
	p.try("gate in another cell (past the routes)", probe.UDPDontRoute, hostPort(gate, 53))
}

// outside tries what lies beyond every cell.
func (p *plan) outside(r *rig) {
	bridge := r.here.cell.Prefix.Addr().Next() // where a host's address would be
	for _, address := range append([]string{bridge.String()}, outside...) {
		for _, port := range outsidePorts {
			p.connect("direct address (tcp)", address+":"+strconv.Itoa(port))
		}
		for _, port := range outsideUDP {
			p.try("direct address (udp)", probe.UDP, address+":"+strconv.Itoa(port))
		}
		p.try("direct address (icmp)", probe.ICMP, address)
	}
	// One name that it would have to forward, and one that docker's answers by itself:
	// the short ID of the namespace's owner.
	for _, name := range []string{r.name("embedded"), r.here.cell.Holder[:min(12, len(r.here.cell.Holder))]} {
		p.tryName("embedded resolver (udp)", probe.DNS, "127.0.0.11:53", name, nil)
		p.tryName("embedded resolver (tcp)", probe.DNSTCP, "127.0.0.11:53", name, nil)
	}
}

// kernel tries what the kernel must refuse.
func (p *plan) kernel() {
	for _, kind := range []probe.Kind{
		probe.RawSocket, probe.PacketSocket, probe.SocketFamilies, probe.SocketPairs, probe.SocketTypes,
		probe.NetAdmin, probe.NFTables, probe.Mount, probe.Unshare, probe.SetUID, probe.Mknod, probe.Chroot,
		probe.PtracePID1, probe.LimitsPID1, probe.CoreLimit, probe.Keyctl, probe.BPF,
		probe.Perf, probe.Userfaultfd, probe.IOUring, probe.OpenByHandle,
	} {
		p.try("kernel: "+string(kind), kind, "")
		p.here[len(p.here)-1].probe.Payload = ""
	}
}

// name is a name that no allowlist has, of this check alone.
func (r *rig) name(label string) string {
	return fmt.Sprintf("%s-%s.boundary.example", label, r.nonce)
}

func hostPort(a netip.Addr, port int) string { return netip.AddrPortFrom(a, uint16(port)).String() }
