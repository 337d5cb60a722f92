package boundary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"sallyport/entrypoint/probe"
	"sallyport/entrypoint/wire"
)

// program is the entrypoint in every image, which is prober and canary as well.
const program = "/sallyport/entrypoint"

// maxOutput bounds what a prober may print, in bytes: it comes out of a sandbox.
const maxOutput = 4 << 20

// jobEnv is the environment of the prober, of which it must see exactly this. The
// setting keeps Go's runtime from holding files of the control group open, which
// would be descriptors of its own.
var jobEnv = []string{"GODEBUG=containermaxprocs=0"}

// probeInSandbox makes trials as the jobs of a sandbox.
func probeInSandbox(ctx context.Context, session *wire.Session, trials []trial) (map[string]probe.Result, error) {
	return collect(trials, func(request []byte, _ []trial, take func(probe.Result)) error {
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
func tell(ask func([]trial) (map[string]probe.Result, error)) (*probe.Self, error) {
	const id = "facts"
	told, err := ask([]trial{{probe: probe.Probe{ID: id, Kind: probe.Facts}}})
	return told[id].Self, err
}

// collect has trials made, as many at a time as a prober takes, and returns the
// result of each. What makes some of them is handed their request, and where results go.
func collect(
	trials []trial, run func(request []byte, some []trial, take func(probe.Result)) error,
) (map[string]probe.Result, error) {
	results := make(map[string]probe.Result)
	for some := range slices.Chunk(trials, probe.MaxProbes) {
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
	for _, a := range trials {
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
