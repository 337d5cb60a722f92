// Package report prints the figures of a side-by-side benchmark and keeps them in
// a file; bench/README.md describes both.
package report

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

// A Figure is one line of the report. The values are medians.
type Figure struct {
	Metric string   `json:"metric"`
	Unit   string   `json:"unit"`
	Ours   float64  `json:"ours"`
	Peer   *float64 `json:"peer"`     // null without a peer
	Name   string   `json:"peerName"` // empty without one
	Ratio  *float64 `json:"ratio"`    // ours over the peer's; null without a peer

	ours, peer []float64 // what the medians are of
}

// Alone is a figure without a peer.
func Alone(metric, unit string, ours []float64) Figure {
	return Figure{Metric: "gate: " + metric, Unit: unit, Ours: median(ours), ours: ours}
}

// Beside sets the samples of the first name, ours, beside those of each other.
func Beside(metric, unit string, names []string, samples map[string][]float64) []Figure {
	ours := Alone(metric, unit, samples[names[0]])
	if len(names) == 1 {
		return []Figure{ours}
	}
	var all []Figure
	for _, name := range names[1:] {
		f := ours
		m := median(samples[name])
		f.Name, f.peer, f.Peer = name, samples[name], &m
		if m > 0 {
			ratio := f.Ours / m
			f.Ratio = &ratio
		}
		all = append(all, f)
	}
	return all
}

func median(of []float64) float64 {
	sorted := slices.Sorted(slices.Values(of))
	n := len(sorted)
	if n == 0 {
		return 0
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Print prints the figures as a table, with the least and the most of their samples.
func Print(w io.Writer, all []Figure) error {
	fmt.Fprint(w, "Medians, with the least and the most in brackets; the ratio is ours over the peer's.\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "metric\tunit\tours\tpeer\tratio\tpeer is")
	for _, f := range all {
		peer, ratio := "", ""
		if f.Peer != nil {
			peer = value(f.peer)
		}
		if f.Ratio != nil {
			ratio = strconv.FormatFloat(*f.Ratio, 'f', 2, 64)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Metric, f.Unit, value(f.ours), peer, ratio, f.Name)
	}
	return t.Flush()
}

func value(of []float64) string {
	if len(of) < 2 {
		return short(median(of))
	}
	return fmt.Sprintf("%s (%s-%s)", short(median(of)), short(slices.Min(of)), short(slices.Max(of)))
}

// short has about three significant digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// Add puts figures into a file of them, in the place of older ones of
// the same metric and peer.
func Add(path string, figures []Figure) error {
	var all []Figure
	old, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read the results: %w", err)
	default:
		if err := json.Unmarshal(old, &all); err != nil {
			return fmt.Errorf("read the results in %s: %w", path, err)
		}
	}
	all = slices.DeleteFunc(all, func(f Figure) bool {
		return slices.ContainsFunc(figures, func(g Figure) bool { return f.Metric == g.Metric && f.Name == g.Name })
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
