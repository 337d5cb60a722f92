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

	"sallyport/entrypoint/probe"
	"sallyport/entrypoint/wire"
)

// maxOutput bounds what a prober may print, in bytes: it comes out of a sandbox.
const maxOutput = 4 << 20

// jobEnv is the environment of the prober, of which it must see exactly this. The
// setting keeps Go's runtime from holding files of the control group open, which
// would be descriptors of its own.
var jobEnv = []string{"GODEBUG=containermaxprocs=0"}

// probeInSandbox makes attempts as the jobs of a sandbox.
func probeInSandbox(ctx context.Context, session *wire.Session, attempts []attempt) (map[string]probe.Result, error) {
	return collect(attempts, func(request []byte, _ []attempt, take func(probe.Result)) error {
		var out bounded
		var failed error
		exit, err := session.Run(ctx, wire.Job{
			ID: "probe", Argv: []string{program, "probe"}, Env: jobEnv, Dir: "/",
		}, bytes.NewReader(request), wire.Handlers{Stdout: func(p []byte) {
			if _, err := out.Write(p); err != nil {
				failed = err
			}
		}})
		if err == nil && exit.Code != 0 {
			err = fmt.Errorf("prober: %+v", exit)
		}
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		return out.results(take)
	})
}

// tell has a prober or canary tell of itself. What is tried beside that opens
// descriptors and starts processes, so nothing is.
func tell(ask func([]attempt) (map[string]probe.Result, error)) (*probe.Self, error) {
	const id = "facts"
	told, err := ask([]attempt{{probe: probe.Probe{ID: id, Kind: probe.Facts}}})
	return told[id].Self, err
}

// forgetVanished takes the controls away for addresses that the host had when its
// canary looked and has no more, as it says of itself now: an engine's networks come and go.
func (p *plan) forgetVanished(now *probe.Self, hits []probe.CanaryHit) error {
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
	p.onHost = slices.DeleteFunc(p.onHost, func(a attempt) bool {
		target, err := netip.ParseAddrPort(a.probe.Address)
		return err == nil && !reported(hits, a.probe.ID) && !present[target.Addr()]
	})
	return nil
}

// collect has attempts made, as many at a time as a prober takes, and returns the
// result of each. What makes some of them is handed their request, and where results go.
func collect(
	attempts []attempt, run func(request []byte, some []attempt, take func(probe.Result)) error,
) (map[string]probe.Result, error) {
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
		if err := run(encoded, some, func(r probe.Result) { results[r.ID] = r }); err != nil {
			return nil, fmt.Errorf("run the prober: %w", err)
		}
	}
	for _, a := range attempts {
		if _, ok := results[a.probe.ID]; !ok {
			return nil, fmt.Errorf("the prober has no result for %s", a.probe.ID)
		}
	}
	return results, nil
}

// A bounded buffer takes no more than maxOutput. The buffer in it is not embedded,
// because its ReadFrom, which io.Copy prefers to Write, knows no bound.
type bounded struct{ taken bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.taken.Len()+len(p) > maxOutput {
		return 0, errors.New("the prober prints too much")
	}
	return b.taken.Write(p)
}

// results reads what a prober has printed.
func (b *bounded) results(take func(probe.Result)) error {
	for lines := json.NewDecoder(&b.taken); ; {
		var result probe.Result
		err := lines.Decode(&result)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the prober's results: %w", err)
		}
		take(result)
	}
}
