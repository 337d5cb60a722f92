package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
)

// A figure is one line of the report, as bench/README.md describes it.
type figure struct {
	Metric string   `json:"metric"`
	Unit   string   `json:"unit"`
	Ours   float64  `json:"ours"`
	Peer   *float64 `json:"peer"`
	Name   string   `json:"peerName"`
	Ratio  *float64 `json:"ratio"`

	ours, peer []float64 // what the medians are of
}

// figures sets the samples of ours, the first kind, beside those of each other.
func figures(metric, unit, load string, kinds []kind, got map[string][]float64) (all []figure) {
	ours := got[load+kinds[0].name]
	f := figure{Metric: "gate: " + metric, Unit: unit, Ours: median(ours), ours: ours}
	if len(kinds) == 1 {
		return []figure{f}
	}
	for _, k := range kinds[1:] {
		f.Name, f.peer = k.name, got[load+k.name]
		peer := median(f.peer)
		ratio := f.Ours / peer
		f.Peer, f.Ratio = &peer, &ratio
		all = append(all, f)
	}
	return all
}

func median(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func printTable(w io.Writer, all []figure) error {
	fmt.Fprint(w, "Medians, with the least and the most in brackets; the ratio is ours over the peer's.\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "metric\tunit\tours\tpeer\tratio\tpeer is")
	for _, f := range all {
		peer, ratio := "", ""
		if f.Peer != nil {
			peer, ratio = spread(f.peer), strconv.FormatFloat(*f.Ratio, 'f', 2, 64)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Metric, f.Unit, spread(f.ours), peer, ratio, f.Name)
	}
	return t.Flush()
}

// spread is a median with the least and the most of its samples.
func spread(of []float64) string {
	digits := 2
	if median(of) >= 100 {
		digits = 0
	}
	text := func(v float64) string { return strconv.FormatFloat(v, 'f', digits, 64) }
	return fmt.Sprintf("%s (%s-%s)", text(median(of)), text(slices.Min(of)), text(slices.Max(of)))
}

// addResults puts figures into a file of them, in the place of older ones of
// the same metric and peer.
func addResults(path string, figures []figure) error {
	var all []figure
	old, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(old, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the results in %s: %w", path, err)
	}
	all = slices.DeleteFunc(all, func(f figure) bool {
		return slices.ContainsFunc(figures, func(g figure) bool { return f.Metric == g.Metric && f.Name == g.Name })
	})
	data, err := json.MarshalIndent(append(all, figures...), "", "  ")
	if err != nil {
		return fmt.Errorf("encode the results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the directory of the results: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}
