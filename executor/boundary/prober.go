package boundary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"sallyport/entrypoint"
	"sallyport/entrypoint/probe"
)

// maxOutput bounds what a prober may print, in bytes: it comes out of a sandbox.
const maxOutput = 4 << 20

// jobEnv is the environment of the prober, of which it must see exactly this. The
// setting keeps Go's runtime from holding files of the control group open, which
// would be descriptors of its own.
var jobEnv = []string{"GODEBUG=containermaxprocs=0"}

// probeInSandbox makes attempts as the jobs of a sandbox.
func probeInSandbox(ctx context.Context, session *entrypoint.Session, attempts []attempt) (map[string]probe.Result, error) {
	return collect(attempts, func(request []byte, out io.Writer) error {
		var failed error
		exit, err := session.Run(ctx, entrypoint.Job{
			ID: "probe", Argv: []string{program, "probe"}, Env: jobEnv, Dir: "/",
		}, bytes.NewReader(request), entrypoint.Handlers{Stdout: func(p []byte) {
			if _, err := out.Write(p); err != nil {
				failed = err
			}
		}})
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("prober: %+v", exit)
		}
		return errors.Join(err, failed)
	})
}

// probeOnHost makes attempts from the host's network.
func (r *rig) probeOnHost(ctx context.Context, name string, attempts []attempt) (map[string]probe.Result, error) {
	prober, err := r.hostProgram(ctx, name, "probe")
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { prober.Stdin().Close() })() // it then ends
	return collect(attempts, func(request []byte, out io.Writer) error {
		if _, err := prober.Stdin().Write(request); err != nil {
			return err
		}
		_, err := io.Copy(out, prober.Stdout())
		return err
	})
}

// forgetVanished takes the controls away for addresses that the host had when its
// canary looked and has no more: an engine's networks come and go.
func (r *rig) forgetVanished(ctx context.Context, p *plan, hits []probe.CanaryHit) error {
	silent := func(a attempt) bool { return !reported(hits, a.probe.ID) }
	if !slices.ContainsFunc(p.onHost, silent) {
		return nil
	}
	now, err := r.probeOnHost(ctx, "facts", facts)
	if err != nil {
		return err
	}
	self := now[facts[0].probe.ID].Self
	if self == nil {
		return errors.New("the prober on the host tells nothing of itself")
	}
	present := make(map[netip.Addr]bool)
	for _, a := range self.Addresses {
		_, address, _ := strings.Cut(a, "=")
		if prefix, err := netip.ParsePrefix(address); err == nil {
			present[prefix.Addr()] = true
		}
	}
	p.onHost = slices.DeleteFunc(p.onHost, func(a attempt) bool {
		target, err := netip.ParseAddrPort(a.probe.Address)
		return err == nil && silent(a) && !present[target.Addr()]
	})
	return nil
}

// collect has a prober make attempts, as many at a time as it takes, and returns
// its result for each of them.
func collect(attempts []attempt, run func(request []byte, out io.Writer) error) (map[string]probe.Result, error) {
	results := make(map[string]probe.Result)
	for some := range slices.Chunk(attempts, probe.MaxProbes) {
		var request probe.Request
		for _, a := range some {
			request.Probes = append(request.Probes, a.probe)
		}
		encoded, err := json.Marshal(request)
		if err != nil {
			return nil, fmt.Errorf("encode the probes: %w", err)
		}
		var out bounded
		if err := run(encoded, &out); err != nil {
			return nil, fmt.Errorf("run the prober: %w", err)
		}
		for lines := json.NewDecoder(&out.Buffer); ; {
			var result probe.Result
			err := lines.Decode(&result)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("read the prober's results: %w", err)
			}
			results[result.ID] = result
		}
	}
	for _, a := range attempts {
		if _, ok := results[a.probe.ID]; !ok {
			return nil, fmt.Errorf("the prober has no result for %s", a.probe.ID)
		}
	}
	return results, nil
}

// A bounded buffer takes no more than maxOutput.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxOutput {
		return 0, errors.New("the prober prints too much")
	}
	return b.Buffer.Write(p)
}
