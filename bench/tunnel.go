package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sallyport/bench/report"
	"sallyport/executor/api"
)

// bulk is the size of the measured download, in bytes.
const bulk = 512 << 20

// download is the script of both sides: small requests, each on a connection of its
// own with a name to look up, then one large answer. No certificate is verified:
// reading its list of authorities takes curl longer than all the rest, and the list
// of a sandbox is the whole one.
var download = fmt.Sprintf(`set -e
for i in 1 2 3 4 5 6 7 8 9; do
  curl -kfsS -o /dev/null -w 'small %%{time_total}\n' https://docs.example/
done
curl -kfsS -o /dev/null -w 'bulk %%{speed_download}\n' 'https://docs.example/bulk?bytes=%d'
`, bulk)

// tunnel measures what a sandbox loads through the gate beside a container that is
// connected to the origin's network.
func (b *bench) tunnel(ctx context.Context) ([]report.Figure, error) {
	taken, err := plan{warmups: 1, rounds: 5, pause: 300 * time.Millisecond}.interleave(ctx,
		contender{"a download in a run", b.downloadInRun}, contender{"a download in a container", b.downloadDirect})
	if err != nil {
		return nil, err
	}
	const name = "container on the origin's network"
	return []report.Figure{
		report.Beside("download over TLS, one stream", "MiB/s", taken[0][0], name, taken[1][0]),
		report.Beside("small HTTPS request, new connection", "ms", taken[0][1], name, taken[1][1]),
	}, nil
}

func (b *bench) downloadInRun(ctx context.Context) ([]float64, error) {
	request := api.Request{Prompt: "go", Config: api.Config{Agent: "command", Argv: []string{"bash", "-c", download}}}
	for ev, err := range b.Execute(ctx, request) {
		if err != nil {
			return nil, err
		}
		if r := ev.Result; r != nil {
			if !r.Success {
				return nil, fmt.Errorf("the run failed: %w; it reached %+v", r.Error, r.Receipt.Hosts)
			}
			return readDownload(r.Output)
		}
	}
	return nil, fmt.Errorf("the stream ended without a result")
}

func (b *bench) downloadDirect(ctx context.Context) ([]float64, error) {
	out, err := docker(ctx, "run", "--rm", "--label", "org.sallyport.stack="+b.stack,
		"--network", b.stack+"_egress", "--dns", b.resolver,
		"--cap-drop", "ALL", "--read-only", "--security-opt", "no-new-privileges",
		"--memory", "2g", "--pids-limit", "512", "--cpus", "2",
		"--entrypoint", "bash", b.image, "-c", download)
	if err != nil {
		return nil, err
	}
	return readDownload(out)
}

// readDownload reads what download printed: the speed in MiB/s, and the median time
// of a small request in ms.
func readDownload(out string) ([]float64, error) {
	var speed, small report.Samples
	for line := range strings.Lines(out) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read a line of the download: %w", err)
		case name == "small":
			small = append(small, v*1000)
		case name == "bulk":
			speed = append(speed, v/(1<<20))
		}
	}
	if len(speed) != 1 || len(small) == 0 {
		return nil, fmt.Errorf("the download printed %q", out)
	}
	return []float64{speed[0], small.Median()}, nil
}
