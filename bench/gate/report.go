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

func alone(metric, unit string, ours []float64) figure {
	return figure{Metric: "gate: " + metric, Unit: unit, Ours: median(ours), ours: ours}
}

// figures sets ours, the first kind, beside each of the others.
func figures(metric, unit string, kinds []kind, got samples) []figure {
	ours := alone(metric, unit, got[kinds[0].name])
	if len(kinds) == 1 {
		return []figure{ours}
	}
	var all []figure
	for _, k := range kinds[1:] {
		f := ours
		m := median(got[k.name])
		f.Name, f.peer, f.Peer = k.name, got[k.name], &m
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

func printTable(w io.Writer, all []figure) error {
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

// addResults puts figures into a file of them, in the place of older ones of
// the same metric and peer.
func addResults(path string, figures []figure) error {
	var all []figure
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
