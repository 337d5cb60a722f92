package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"sallyport/bench/report"
	"sallyport/executor/api"
)

// said is what the agent of a measured start prints.
const said = "x"

// The peers of a start: what is asked of docker run, and its name in the report.
var startPeers = []struct {
	name  string
	flags []string
}{
	{"docker run", nil},
	{"docker run, hardened", []string{
		"--cap-drop", "ALL", "--read-only", "--security-opt", "no-new-privileges", "--memory", "2g", "--pids-limit", "512",
	}},
}

// stages are those of a result's timings up to the first output, in the order in
// which a run goes through them.
var stages = []struct {
	name string
	of   func(api.Timings) int64
}{
	{"policy", func(t api.Timings) int64 { return t.Policy }},
	{"queue", func(t api.Timings) int64 { return t.Queue }},
	{"token", func(t api.Timings) int64 { return t.Token }},
	{"cell", func(t api.Timings) int64 { return t.Cell }},
	{"start", func(t api.Timings) int64 { return t.Start }},
	{"ready", func(t api.Timings) int64 { return t.Ready }},
	{"first output", func(t api.Timings) int64 { return t.FirstOutput }},
}

// starts measures the time from the call to the first byte of the agent's process,
// one run at a time, beside docker run of the same image.
func (b *bench) starts(ctx context.Context) ([]report.Figure, error) {
	all := []contender{{"a run", b.startRun}}
	for _, peer := range startPeers {
		all = append(all, contender{peer.name, func(ctx context.Context) ([]float64, error) {
			return b.dockerRun(ctx, peer.flags)
		}})
	}
	taken, err := plan{warmups: 2, rounds: b.rounds, pause: 300 * time.Millisecond}.interleave(ctx, all...)
	if err != nil {
		return nil, err
	}
	ours := taken[0]
	var figures []report.Figure
	for i, peer := range startPeers {
		figures = append(figures, report.Beside("cold start, call to first byte", "ms", ours[0], peer.name, taken[i+1][0]))
	}
	figures = append(figures, report.Alone("cold start, call to result", "ms", ours[1]))
	for i, stage := range stages {
		if ours[2+i].Median() < 0 {
			continue // a stage that no such run reaches
		}
		figures = append(figures, report.Alone("cold start, executor's clock at "+stage.name, "ms", ours[2+i]))
	}
	return figures, nil
}

// startRun is one run. It returns the times until the first output and the result
// by this program's clock, then those until each stage by the executor's; all in ms.
func (b *bench) startRun(ctx context.Context) ([]float64, error) {
	request := api.Request{Prompt: "go", Config: api.Config{Agent: "command", Argv: []string{"echo", said}}}
	began := time.Now()
	var first time.Duration
	for ev, err := range b.Execute(ctx, request) {
		if err != nil {
			return nil, err
		}
		switch {
		case ev.Type == api.EventOutput && first == 0:
			first = time.Since(began)
		case ev.Type == api.EventResult:
			if !ev.Result.Success || strings.TrimSpace(ev.Result.Output) != said || first == 0 {
				return nil, fmt.Errorf("the run did not do its work: %+v", *ev.Result)
			}
			values := []float64{ms(first), ms(time.Since(began))}
			for _, stage := range stages {
				values = append(values, float64(stage.of(ev.Result.Timings)))
			}
			return values, nil
		}
	}
	return nil, fmt.Errorf("the stream ended without a result")
}

// dockerRun is one docker run of the same image. It returns the time from the start
// of docker(1) to the first byte of its output, in ms.
func (b *bench) dockerRun(ctx context.Context, flags []string) ([]float64, error) {
	args := slices.Concat([]string{"run", "--rm", "--network", "bridge", "--label", "org.sallyport.stack=" + b.stack}, flags,
		[]string{"--entrypoint", "/bin/echo", b.image, said})
	cmd := exec.CommandContext(ctx, "docker", args...)
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("docker run: %w", err)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("docker run: %w", err)
	}
	var b1 [1]byte
	_, readErr := io.ReadFull(out, b1[:])
	first := time.Since(began)
	if _, err := io.Copy(io.Discard, out); err != nil {
		return nil, fmt.Errorf("read the output of docker run: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("docker run: %w\n%s", err, stderr)
	}
	if readErr != nil || string(b1[:]) != said {
		return nil, fmt.Errorf("docker run printed %q first, want %q", b1, said)
	}
	return []float64{ms(first)}, nil
}
