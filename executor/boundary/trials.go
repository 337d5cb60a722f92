package boundary

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sallyport/entrypoint/probe"
	"sallyport/executor/backend"
)

// A trial is one probe and the finding to which it belongs.
type trial struct {
	finding string
	probe   probe.Probe
	// verdict says what is wrong with a result, or "". If nil, the probe must not
	// have reached anything.
	verdict func(probe.Result) string
	// control says that a wrong result is not a way out but a check that proves
	// nothing.
	control bool
}

// Trials are all that is tried, by where it is tried from.
type trials struct {
	here   []trial // from inside the cell
	beside []trial // from the canary in the other cell: controls
	onHost []trial // from the host: controls
	// names are what the plan asks the gate of the own cell, and must find in its
	// receipt; foreign those it asks the other cell's gate.
	names, foreign []string
	// These begin the payloads, and the identifiers, of trials and of controls.
	trialToken, controlToken string
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

// Surroundings are what is there to be tried, now that everything listens.
type surroundings struct {
	nonce          string
	here, there    backend.Cell
	onHost, beside probe.CanaryHello // beside is the one in the other cell
}

// newTrials lists what to try.
func newTrials(s surroundings) *trials {
	t := &trials{
		trialToken:   "boundary-" + s.nonce + "-attempt-",
		controlToken: "boundary-" + s.nonce + "-control-",
	}
	t.ownGate(s)
	t.host(s)
	t.otherCell(s)
	t.outside(s)
	t.kernel()
	return t
}

// try adds a trial from inside the cell.
func (t *trials) try(finding string, kind probe.Kind, address string) {
	t.tryName(finding, kind, address, "", nil)
}

func (t *trials) tryName(finding string, kind probe.Kind, address, name string, verdict func(probe.Result) string) {
	id := t.trialToken + strconv.Itoa(len(t.here))
	a := trial{finding: finding, verdict: verdict, probe: probe.Probe{
		ID: id, Kind: kind, Address: address, ServerName: name, TimeoutMS: timeoutMS,
	}}
	switch kind {
	case probe.DNS, probe.DNSTCP, probe.TLS, probe.HTTP:
	default:
		a.probe.Payload = id
	}
	t.here = append(t.here, a)
}

// connect adds a trial that counts as soon as a connection is made.
func (t *trials) connect(finding, address string) {
	t.try(finding, probe.TCP, address)
	t.here[len(t.here)-1].probe.Payload = ""
}

// control adds a control to a list: it must reach what it tries.
func (t *trials) control(list []trial, kind probe.Kind, address string) []trial {
	id := t.controlToken + strconv.Itoa(len(t.here)+len(t.beside)+len(t.onHost))
	return append(list, trial{finding: "control", control: true, verdict: mustReach, probe: probe.Probe{
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
func (t *trials) ownGate(s surroundings) {
	gate := s.here.Gate
	at := func(port int) string { return hostPort(gate, port) }
	for _, port := range []int{53, 80, 443} {
		t.here = t.control(t.here, probe.TCP, at(port))
		t.here[len(t.here)-1].probe.Payload = ""
	}
	ask := func(finding string, kind probe.Kind, label string) {
		name := s.name(label)
		t.names = append(t.names, name)
		t.tryName(finding, kind, at(53), name, noSuchName)
	}
	ask("gate refuses unlisted names (dns)", probe.DNS, "udp")
	ask("gate refuses unlisted names (dns)", probe.DNSTCP, "tcp")
	for _, name := range []string{"host.docker.internal", "gateway.docker.internal", "metadata.google.internal"} {
		t.tryName("gate refuses internal names (dns)", probe.DNS, at(53), name, noSuchName)
	}
	unlisted := s.name("tls")
	t.names = append(t.names, unlisted)
	t.tryName("gate refuses unlisted names (tls)", probe.TLS, at(443), unlisted, nil)
	t.tryName("gate refuses tls without a name", probe.TLS, at(443), "", nil)
	unlisted = s.name("http")
	t.names = append(t.names, unlisted)
	t.tryName("gate refuses unlisted names (http)", probe.HTTP, at(80), unlisted, forbidden)
	for _, port := range gateOtherPorts {
		t.connect("gate has no other port (tcp)", at(port))
	}
	for _, port := range gateOtherUDP {
		t.try("gate has no other port (udp)", probe.UDP, at(port))
	}
	t.try("icmp to the gate", probe.ICMP, gate.String())
}

// host tries the canary on the host by every address of the host.
func (t *trials) host(s surroundings) {
	port := s.onHost.Port
	var any6 string
	for _, a := range s.onHost.Addresses {
		if a.Is6() {
			target := a
			if a.Zone() != "" {
				target = a.WithZone("eth0") // its own device has another name in there
			}
			any6 = hostPort(target, port)
			t.try("host listener (ipv6)", probe.IPv6, any6)
			continue
		}
		address := hostPort(a, port)
		t.onHost = t.control(t.onHost, probe.TCP, address)
		t.onHost = t.control(t.onHost, probe.UDP, address)
		t.try("host listener (tcp)", probe.TCP, address)
		t.try("host listener (udp)", probe.UDP, address)
		t.try("host listener (tcp, past the routes)", probe.TCPDontRoute, address)
		t.try("host listener (udp, past the routes)", probe.UDPDontRoute, address)
		t.try("icmp to the host", probe.ICMP, a.String())
	}
	loopback := hostPort(netip.IPv6Loopback(), port)
	if any6 == "" { // the all-nodes address is tried even so
		t.try("host listener (ipv6)", probe.IPv6, loopback)
	} else {
		t.onHost = t.control(t.onHost, probe.TCP, loopback)
	}
	t.try("host listener (broadcast)", probe.UDPBroadcast, hostPort(netip.AddrFrom4([4]byte{255, 255, 255, 255}), port))
	t.try("host listener (multicast)", probe.UDPMulticast, hostPort(netip.AddrFrom4([4]byte{224, 0, 0, 1}), port))
}

// otherCell tries the sandbox in the other cell and the gate's address there.
func (t *trials) otherCell(s surroundings) {
	port := s.beside.Port
	for _, a := range []netip.Addr{s.there.Sandbox, netip.AddrFrom4([4]byte{127, 0, 0, 1})} {
		t.beside = t.control(t.beside, probe.TCP, hostPort(a, port))
		t.beside = t.control(t.beside, probe.UDP, hostPort(a, port))
	}
	t.beside = t.control(t.beside, probe.TCP, hostPort(s.there.Gate, 443))
	t.beside[len(t.beside)-1].probe.Payload = ""

	sandbox, gate := s.there.Sandbox, s.there.Gate
	t.try("other sandbox (tcp)", probe.TCP, hostPort(sandbox, port))
	t.try("other sandbox (udp)", probe.UDP, hostPort(sandbox, port))
	t.try("other sandbox (past the routes)", probe.TCPDontRoute, hostPort(sandbox, port))
	t.try("other sandbox (past the routes)", probe.UDPDontRoute, hostPort(sandbox, port))
	t.try("icmp to another cell", probe.ICMP, sandbox.String())
	t.try("icmp to another cell", probe.ICMP, gate.String())
	for _, kind := range []probe.Kind{probe.DNS, probe.DNSTCP} {
		name := s.name("foreign-" + string(kind))
		t.foreign = append(t.foreign, name)
		t.tryName("gate in another cell (dns)", kind, hostPort(gate, 53), name, nil)
	}
	for _, port := range []int{53, 80, 443} {
		t.connect("gate in another cell (tcp)", hostPort(gate, port))
		t.try("gate in another cell (past the routes)", probe.TCPDontRoute, hostPort(gate, port))
	}
	t.try("gate in another cell (past the routes)", probe.UDPDontRoute, hostPort(gate, 53))
}

// outside tries what lies beyond every cell.
func (t *trials) outside(s surroundings) {
	bridge := s.here.Prefix.Addr().Next() // where a host's address would be
	for _, address := range append([]string{bridge.String()}, outside...) {
		for _, port := range outsidePorts {
			t.connect("direct address (tcp)", address+":"+strconv.Itoa(port))
		}
		for _, port := range outsideUDP {
			t.try("direct address (udp)", probe.UDP, address+":"+strconv.Itoa(port))
		}
		t.try("direct address (icmp)", probe.ICMP, address)
	}
	// One name that it would have to forward, and one that docker's answers by itself:
	// the short ID of the namespace's owner.
	for _, name := range []string{s.name("embedded"), s.here.Holder[:min(12, len(s.here.Holder))]} {
		t.tryName("embedded resolver (udp)", probe.DNS, "127.0.0.11:53", name, nil)
		t.tryName("embedded resolver (tcp)", probe.DNSTCP, "127.0.0.11:53", name, nil)
	}
}

// kernel tries what the kernel must refuse.
func (t *trials) kernel() {
	for _, kind := range []probe.Kind{
		probe.RawSocket, probe.PacketSocket, probe.SocketFamilies, probe.SocketPairs, probe.SocketTypes,
		probe.NetAdmin, probe.NFTables, probe.Mount, probe.Unshare, probe.SetUID, probe.Mknod, probe.Chroot,
		probe.PtracePID1, probe.LimitsPID1, probe.CoreLimit, probe.Keyctl, probe.BPF,
		probe.Perf, probe.Userfaultfd, probe.IOUring, probe.OpenByHandle,
	} {
		t.try("kernel: "+string(kind), kind, "")
		t.here[len(t.here)-1].probe.Payload = ""
	}
}

// forgetVanished takes the controls away for addresses that the host had when its
// canary looked and has no more, as it says of itself now: an engine's networks come and go.
func (t *trials) forgetVanished(now *probe.Self, hits []probe.CanaryHit) error {
	if now == nil {
		return errors.New("the canary on the host tells nothing of itself")
	}
	present := make(map[netip.Addr]bool)
	for _, a := range now.Addresses {
		_, address, _ := strings.Cut(a, "=")
		if prefix, err := netip.ParsePrefix(address); err == nil {
			present[prefix.Addr()] = true
		}
	}
	t.onHost = slices.DeleteFunc(t.onHost, func(a trial) bool {
		target, err := netip.ParseAddrPort(a.probe.Address)
		return err == nil && !reported(hits, a.probe.ID) && !present[target.Addr()]
	})
	return nil
}

func reported(hits []probe.CanaryHit, id string) bool {
	return slices.ContainsFunc(hits, func(h probe.CanaryHit) bool { return h.Payload == id })
}

// name is a name that no allowlist has, of this check alone.
func (s surroundings) name(label string) string {
	return fmt.Sprintf("%s-%s.boundary.example", label, s.nonce)
}

func hostPort(a netip.Addr, port int) string { return netip.AddrPortFrom(a, uint16(port)).String() }
