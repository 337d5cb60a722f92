package cells

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"sallyport/executor/backend"
	"sallyport/executor/backend/docker/engine"
)

// keeperPath is the keeper in the gate's image.
const keeperPath = "/cell"

// keeperStart bounds the engine's start of a keeper.
const keeperStart = time.Minute

// keeperPatience bounds the time from a keeper's start to its "ready" where the engine
// took so long to create and start it. One that ends is noticed at once, and a
// slow machine is not a broken one.
func keeperPatience(took time.Duration) time.Duration { return 10*time.Second + 10*took }

// keeperLimits suffice for a program that sleeps.
var keeperLimits = backend.Limits{
	MemoryBytes: 32 << 20, PIDs: 32, CPUs: 1, TmpBytes: 1 << 20, NoFile: 64, ShmSizeBytes: 64 << 10,
}

// startKeeper starts the keeper of a cell and returns its ID once it has sealed
// the network namespace and given up its privileges.
func (p *Pool) startKeeper(ctx context.Context, network string, c *cell, image string) (string, error) {
	img, err := p.engine.Image(ctx, image)
	if err != nil {
		return "", err
	}
	config, host, endpoints := p.keeper(network, c, img.ID, img.Config.Env)
	began := time.Now()
	id, err := p.engine.Create(ctx, network, config, host, endpoints)
	if err != nil {
		return "", fmt.Errorf("create the keeper of %s: %w", network, taken(err))
	}
	if err := p.awaitKeeper(ctx, id, began); err != nil {
		ctx, cancel := engine.Steady(ctx)
		defer cancel()
		return "", errors.Join(fmt.Errorf("keeper of %s: %w", network, err), p.engine.RemoveContainer(ctx, id))
	}
	return id, nil
}

// keeper is the configuration of a keeper. It starts as root, because an engine
// gives capabilities to nobody else, and becomes a user without any before it says
// that it is ready. Its network settings hold for the sandbox that joins it, which
// can neither set nor change them.
func (p *Pool) keeper(name string, c *cell, image string, env []string) (
	*container.Config, *container.HostConfig, *network.NetworkingConfig,
) {
	config := &container.Config{
		Image: image, User: "0:0", Hostname: engine.Hostname,
		Entrypoint: []string{keeperPath}, Cmd: []string{"-gate", c.Gate.String()},
		Env: engine.Environment(env), WorkingDir: "/",
		AttachStdout: true, AttachStderr: true,
		Labels:      p.engine.Labels(engine.RoleCell, c.ID, ""),
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
		StopSignal:  "SIGTERM",
	}
	host := p.engine.Confined(keeperLimits)
	host.NetworkMode = container.NetworkMode(name)
	host.CapAdd = []string{"NET_ADMIN", "SETUID", "SETGID", "SETPCAP"}
	host.OomScoreAdj = 0
	host.DNS = []string{c.Gate.String()}
	host.DNSSearch = []string{"."} // none, rather than the host's
	host.Sysctls = map[string]string{
		"net.ipv4.ip_forward":                "0",
		"net.ipv4.ping_group_range":          "1 0", // nobody
		"net.ipv6.conf.all.disable_ipv6":     "1",
		"net.ipv6.conf.default.disable_ipv6": "1",
		// The keeper's filter refuses a wider range: the host's table of connections has
		// an entry for each port.
		"net.ipv4.ip_local_port_range": "32768 36863",
		// The ports of one run's last connections are the next one's at once.
		"net.ipv4.tcp_tw_reuse": "1",
	}
	return config, host, &network.NetworkingConfig{EndpointsConfig: map[string]*network.EndpointSettings{
		name: {IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: c.Sandbox.String()}},
	}}
}

// awaitKeeper starts a keeper, whose making began then, and waits for its word.
func (p *Pool) awaitKeeper(ctx context.Context, id string, began time.Time) error {
	starting, cancel := context.WithTimeout(ctx, keeperStart)
	defer cancel()
	streams, err := p.engine.API.ContainerAttach(starting, id, container.AttachOptions{Stream: true, Stdout: true, Stderr: true})
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	s := p.engine.Attached(id, streams)
	defer s.Detach()
	if err := p.engine.API.ContainerStart(starting, id, container.StartOptions{}); err != nil {
		return fmt.Errorf("start: %w", taken(err))
	}
	ctx, cancel = context.WithTimeout(ctx, keeperPatience(time.Since(began)))
	defer cancel()
	defer context.AfterFunc(ctx, s.Detach)() // so that the read below ends
	line, err := bufio.NewReader(io.LimitReader(s.Stdout, 64)).ReadString('\n')
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("wait for ready: %w", ctx.Err())
	case err != nil || line != "ready\n":
		<-s.Done() // all it had to say
		return fmt.Errorf("it said %q instead of ready (%q)", line, s.Stderr())
	}
	return nil
}
