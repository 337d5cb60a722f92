package cells

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/engine"
)

// A cell is a backend.Cell with the engine's names for its parts.
type cell struct {
	backend.Cell
	network string // ID
	gate    string // the gate container's ID
}

// errSubnetTaken says that the engine would not make a network of that subnet:
// somebody else has it.
var errSubnetTaken = errors.New("the subnet is taken")

// gate finds this stack's running gate.
func (p *Pool) gate(ctx context.Context) (string, error) {
	found, err := p.engine.API.ContainerList(ctx, container.ListOptions{Filters: p.engine.Mine(engine.RoleGate)})
	if err != nil {
		return "", fmt.Errorf("look for the gate: %w", err)
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d running containers are labelled as the gate of stack %s, want 1", len(found), p.engine.Stack)
	}
	return found[0].ID, nil
}

// takenSubnets are those of all networks on the engine.
func (p *Pool) takenSubnets(ctx context.Context) ([]netip.Prefix, error) {
	networks, err := p.engine.API.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	var taken []netip.Prefix
	for _, n := range networks {
		for _, c := range n.IPAM.Config {
			if p, err := netip.ParsePrefix(c.Subnet); err == nil {
				taken = append(taken, p)
			}
		}
	}
	return taken, nil
}

func overlaps(p netip.Prefix, taken []netip.Prefix) bool {
	for _, t := range taken {
		if t.Overlaps(p) {
			return true
		}
	}
	return false
}

// subnetsOf are the subnets of cells in a pool, in order.
func subnetsOf(pool netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for a := pool.Addr(); pool.Contains(a); a = nth(a, 1<<(32-cellBits)) {
			if !yield(netip.PrefixFrom(a, cellBits)) {
				return
			}
		}
	}
}

// nth is the IPv4 address n after a; past the last one it is invalid.
func nth(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	v := uint64(b[0])<<24 | uint64(b[1])<<16 | uint64(b[2])<<8 | uint64(b[3]) + uint64(n)
	if v > 0xffffffff {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}

// makeCell makes a cell: an internal network on which the host has no address, the
// gate connected to it, and a keeper in it that has sealed its namespace. When it
// fails nothing is left.
func (p *Pool) makeCell(ctx context.Context, pool, prefix netip.Prefix, gate, image string) (_ *cell, err error) {
	made := &cell{gate: gate, Cell: backend.Cell{
		ID: newCellID(prefix), Prefix: prefix, Pool: pool,
		Gate: nth(prefix.Addr(), 2), Sandbox: nth(prefix.Addr(), 3),
	}}
	defer func() {
		if err != nil {
			ctx, cancel := engine.Steady(ctx)
			defer cancel()
			err = errors.Join(err, p.removeCell(ctx, made))
		}
	}()
	name := p.engine.Stack + "-cell-" + made.ID
	if made.network, err = p.createNetwork(ctx, name, made.ID, prefix); err != nil {
		return nil, err
	}
	var wait sync.WaitGroup
	var connected, sealed error
	wait.Go(func() { connected = p.connectGate(ctx, name, made) })
	wait.Go(func() { made.Holder, sealed = p.startKeeper(ctx, name, made, image) })
	wait.Wait()
	if err := errors.Join(connected, sealed); err != nil {
		return nil, err
	}
	return made, nil
}

// createNetwork creates the network of a cell and returns its ID.
func (p *Pool) createNetwork(ctx context.Context, name, cell string, prefix netip.Prefix) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	ctx, cancel := engine.Steady(ctx)
	defer cancel()
	no := false
	created, err := p.engine.API.NetworkCreate(ctx, name, network.CreateOptions{
		Driver: "bridge", Internal: true, EnableIPv6: &no,
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: prefix.String()}}},
		Options: map[string]string{
			// No address for the host: the first for engines before 28, the second
			// from there on. Each ignores the other's.
			"com.docker.network.bridge.inhibit_ipv4":      "true",
			"com.docker.network.bridge.gateway_mode_ipv4": "isolated",
		},
		Labels: p.engine.Labels(engine.RoleNetwork, cell, ""),
	})
	if err != nil {
		return "", fmt.Errorf("create network %s (%s): %w", name, prefix, taken(err))
	}
	return created.ID, nil
}

// connectGate gives the gate its address in a cell.
func (p *Pool) connectGate(ctx context.Context, name string, c *cell) error {
	ctx, cancel := engine.Steady(ctx)
	defer cancel()
	err := p.engine.API.NetworkConnect(ctx, c.network, c.gate, &network.EndpointSettings{
		IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: c.Gate.String()},
		GwPriority: -1, // never the gate's way to the world
	})
	if err != nil {
		return fmt.Errorf("connect the gate to %s: %w", name, taken(err))
	}
	return nil
}

// taken marks the engine's refusal of a subnet or an address that is in use. The
// engine has no code of its own for it (it answers 403 or 500), only the text.
func taken(err error) error {
	text := strings.ToLower(err.Error())
	for _, refusal := range []string{"pool overlaps", "already in use", "address in use", "conflicts with network"} {
		if strings.Contains(text, refusal) {
			return fmt.Errorf("%w: %w", errSubnetTaken, err)
		}
	}
	return err
}

// newCellID is a cell's name: its subnet, for people, and a random part, so that a
// later cell in the same subnet is never taken for it.
func newCellID(p netip.Prefix) string {
	b := p.Addr().As4()
	random := make([]byte, 4)
	rand.Read(random) // never fails
	return fmt.Sprintf("%d-%d-%s", b[2], b[3], hex.EncodeToString(random))
}

// intact asks the engine whether a cell is still what was made: the keeper and the
// gate, running, each at its address, and nobody else.
func (p *Pool) intact(ctx context.Context, c *cell) error {
	inspected, err := p.engine.API.NetworkInspect(ctx, c.network, engine.NetworkInspect)
	if err != nil {
		return fmt.Errorf("inspect the network: %w", err)
	}
	for _, want := range []struct {
		who, id string
		addr    netip.Addr
	}{{"keeper", c.Holder, c.Sandbox}, {"gate", c.gate, c.Gate}} {
		member, ok := inspected.Containers[want.id]
		if !ok {
			return fmt.Errorf("the %s is not there", want.who)
		}
		if at, err := netip.ParsePrefix(member.IPv4Address); err != nil || at.Addr() != want.addr {
			return fmt.Errorf("the %s is at %q, not at %s", want.who, member.IPv4Address, want.addr)
		}
	}
	if n := len(inspected.Containers); n != 2 {
		return fmt.Errorf("%d containers are connected, want 2", n)
	}
	return nil
}

// removeCell removes what there is of a cell.
func (p *Pool) removeCell(ctx context.Context, c *cell) error {
	var errs []error
	if c.Holder != "" {
		errs = append(errs, p.engine.RemoveContainer(ctx, c.Holder))
	}
	if c.network != "" {
		errs = append(errs, p.engine.RemoveNetwork(ctx, c.network))
	}
	return errors.Join(append(errs, os.RemoveAll(p.engine.CellDir(c.ID)))...)
}
