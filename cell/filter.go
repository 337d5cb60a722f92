package cell

import (
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tableName is the name of the one table that a sealed namespace holds.
const tableName = "sallyport"

// resolver is the engine's embedded resolver, which answers inside every
// container's namespace from the host's side.
var resolver = netip.AddrFrom4([4]byte{127, 0, 0, 11})

// The gate's ports.
var (
	tcpPorts = []uint16{53, 80, 443}
	udpPorts = []uint16{53}
)

// Offsets in the headers of IPv4 (RFC 791), TCP (RFC 9293), UDP and ICMP.
const (
	ipSource, ipDestination      = 12, 16
	sourcePort, destinationPort  = 0, 2
	tcpFlags, tcpSYN, tcpACK     = 13, 0x02, 0x10
	icmpType, icmpUnreachable    = 0, 3
	loopbackIndex                = 1 // the loopback device of every namespace
	rejectReset, rejectICMPX     = 1, 2
	icmpxAdministrativelyRefused = 3
)

// What the host remembers of a cell's connections: its table (nf_conntrack(5)) is one
// for all cells, and has an entry for each pair of ports for up to two minutes after
// the last packet. A sandbox that sends from all of its ports could fill it.
const (
	// maxPorts is how many source ports a cell may use freely: those that its kernel
	// chooses, at any rate, since each one is used again and again.
	maxPorts = 4096
	// From other ports, which some programs choose themselves for a query, go so many
	// datagrams a second, and so many at once.
	otherRate, otherBurst = 20, 256
)

// maxLocal is how many TCP connections a cell may have to itself at a time. The kernel
// buffers some 70 KB for each, out of what the host has for all, whatever limit of
// memory the sandbox has come to.
const maxLocal = 4096

// A portRange is that of the ports that the kernel chooses (ip_local_port_range).
type portRange struct{ low, high uint16 }

// A chain is one base chain of the filter: its hook and its rules. What no rule
// accepts is dropped, but in one that is early, which only prepares.
type chain struct {
	name  string
	hook  *nftables.ChainHook
	rules [][]expr.Any
	early bool
}

func (c chain) priority() *nftables.ChainPriority {
	if c.early {
		return nftables.ChainPriorityRaw
	}
	return nftables.ChainPriorityFilter
}

func (c chain) policy() nftables.ChainPolicy {
	if c.early {
		return nftables.ChainPolicyAccept
	}
	return nftables.ChainPolicyDrop
}

// filter is the whole filter for a namespace whose gate has the address given, and
// whose kernel chooses the ports of own.
func filter(gate netip.Addr, own portRange) []chain {
	fromGate := addr(ipSource, gate)
	toGate := addr(ipDestination, gate)
	ownPort := between(sourcePort, own)

	output := [][]expr.Any{
		rule(options(), reject(rejectICMPX, icmpxAdministrativelyRefused)),
		rule(addr(ipDestination, resolver), reject(rejectICMPX, icmpxAdministrativelyRefused)),
		rule(local(expr.MetaKeyOIF), protocol(unix.IPPROTO_TCP), opening(), over(maxLocal), reject(rejectReset, 0)),
		rule(local(expr.MetaKeyOIF), accept()),
	}
	input := [][]expr.Any{
		rule(local(expr.MetaKeyIIF), accept()),
		// an answer is never the opening of a connection
		rule(fromGate, protocol(unix.IPPROTO_TCP), opening(), drop()),
		rule(fromGate, protocol(unix.IPPROTO_ICMP), transport(icmpType, []byte{icmpUnreachable}), accept()),
	}
	for _, p := range udpPorts {
		toPort := rule(toGate, protocol(unix.IPPROTO_UDP), port(destinationPort, p))
		output = append(output, rule(toPort, ownPort, accept()), rule(toPort, limited(), accept()))
		input = append(input, rule(fromGate, protocol(unix.IPPROTO_UDP), port(sourcePort, p), accept()))
	}
	for _, p := range tcpPorts {
		output = append(output, rule(toGate, protocol(unix.IPPROTO_TCP), port(destinationPort, p), ownPort, accept()))
		input = append(input, rule(fromGate, protocol(unix.IPPROTO_TCP), port(sourcePort, p), accept()))
	}
	output = append(output,
		rule(protocol(unix.IPPROTO_TCP), reject(rejectReset, 0)),
		rule(reject(rejectICMPX, icmpxAdministrativelyRefused)),
	)
	// Only connections of the namespace to itself are counted: the rest of its own table,
	// which the sandbox could fill, is left empty.
	untracked := func(device expr.MetaKey) [][]expr.Any {
		return [][]expr.Any{rule(local(device), protocol(unix.IPPROTO_TCP), accept()), {&expr.Notrack{}}}
	}
	return []chain{
		{"output", nftables.ChainHookOutput, output, false},
		{"input", nftables.ChainHookInput, input, false},
		{"forward", nftables.ChainHookForward, nil, false},
		{"outgoing", nftables.ChainHookOutput, untracked(expr.MetaKeyOIF), true},
		{"incoming", nftables.ChainHookPrerouting, untracked(expr.MetaKeyIIF), true},
	}
}

// install replaces whatever filter the namespace had of ours by this one, in one
// transaction.
func install(c *nftables.Conn, chains []chain) error {
	t := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	c.AddTable(t) // so that the deletion finds one
	c.DelTable(t)
	c.AddTable(t)
	for _, ch := range chains {
		policy := ch.policy()
		nc := c.AddChain(&nftables.Chain{
			Name: ch.name, Table: t, Type: nftables.ChainTypeFilter,
			Hooknum: ch.hook, Priority: ch.priority(), Policy: &policy,
		})
		for _, r := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: nc, Exprs: r})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("install the packet filter: %w", err)
	}
	return nil
}

// rule joins the conditions and the verdict of one rule.
func rule(parts ...[]expr.Any) []expr.Any {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func equal(data []byte) *expr.Cmp {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data}
}

func meta(key expr.MetaKey, data []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, equal(data)}
}

func protocol(p byte) []expr.Any { return meta(expr.MetaKeyL4PROTO, []byte{p}) }

// addr matches IPv4 packets with the address a at an offset of their header.
func addr(offset uint32, a netip.Addr) []expr.Any {
	return append(meta(expr.MetaKeyNFPROTO, []byte{unix.NFPROTO_IPV4}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		equal(a.AsSlice()))
}

func transport(offset uint32, data []byte) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: uint32(len(data))},
		equal(data),
	}
}

func port(offset uint32, p uint16) []expr.Any {
	return transport(offset, binaryutil.BigEndian.PutUint16(p))
}

// between matches ports of a range.
func between(offset uint32, r portRange) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpGte, Register: 1, Data: binaryutil.BigEndian.PutUint16(r.low)},
		&expr.Cmp{Op: expr.CmpOpLte, Register: 1, Data: binaryutil.BigEndian.PutUint16(r.high)},
	}
}

// local matches what goes over the loopback device.
func local(device expr.MetaKey) []expr.Any {
	return meta(device, binaryutil.NativeEndian.PutUint32(loopbackIndex))
}

// over matches what would be a connection more than n.
func over(n uint32) []expr.Any {
	return []expr.Any{&expr.Connlimit{Count: n, Flags: expr.NFT_CONNLIMIT_F_INV}}
}

// limited matches as many packets as may come from ports of a program's choice.
func limited() []expr.Any {
	return []expr.Any{&expr.Limit{Type: expr.LimitTypePkts, Rate: otherRate, Unit: expr.LimitTimeSecond, Burst: otherBurst}}
}

// options matches IPv4 packets whose header is longer than five words: an option
// such as a source route could send a packet further than to its address.
func options() []expr.Any {
	return append(meta(expr.MetaKeyNFPROTO, []byte{unix.NFPROTO_IPV4}),
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 0, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{0x0f}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte{5}})
}

// opening matches TCP segments with SYN and without ACK.
func opening() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpSYN | tcpACK}, Xor: []byte{0}},
		equal([]byte{tcpSYN}),
	}
}

func accept() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}} }
func drop() []expr.Any   { return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}} }

func reject(kind uint32, code uint8) []expr.Any {
	return []expr.Any{&expr.Reject{Type: kind, Code: code}}
}
