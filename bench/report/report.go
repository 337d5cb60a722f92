// Package report is what the programs that measure have in common: how they start
// and end, the figures that they take beside a peer, the table, and the file that
// keeps the figures of all of them; bench/README.md describes both.
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

// Samples are values of one thing, in the order in which they were taken.
type Samples []float64

// Median is the middle of the samples; 0 of none.
func (s Samples) Median() float64 { return s.Quantile(0.5) }

// Quantile is the value below which the fraction q of the samples lies, between two
// of them where it falls between them; 0 of none.
func (s Samples) Quantile(q float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// A Figure is one line of the report. The values are medians.
type Figure struct {
	Metric string   `json:"metric"`
	Unit   string   `json:"unit"`
	Ours   float64  `json:"ours"`
	Peer   *float64 `json:"peer"`     // null without a peer
	Name   string   `json:"peerName"` // empty without one
	Ratio  *float64 `json:"ratio"`    // ours over the peer's; null without a peer

	ours, peer Samples // what the medians are of
}

// Alone is a figure without a peer.
func Alone(metric, unit string, ours Samples) Figure {
	return Figure{Metric: metric, Unit: unit, Ours: ours.Median(), ours: ours}
}

// Beside is a figure with a peer.
func Beside(metric, unit string, ours Samples, name string, peer Samples) Figure {
	f := Alone(metric, unit, ours)
	median := peer.Median()
	f.Name, f.Peer, f.peer = name, &median, peer
	if median != 0 {
		ratio := f.Ours / median
		f.Ratio = &ratio
	}
	return f
}

// Among sets the samples of the first name, ours, beside those of each other.
func Among(metric, unit string, names []string, samples map[string][]float64) []Figure {
	ours := samples[names[0]]
	if len(names) == 1 {
		return []Figure{Alone(metric, unit, ours)}
	}
	var all []Figure
	for _, name := range names[1:] {
		all = append(all, Beside(metric, unit, ours, name, samples[name]))
	}
	return all
}

// Print prints the figures as a table under a line about what was measured.
func Print(w io.Writer, about string, all []Figure) error {
	fmt.Fprintf(w, "%s\nMedians, with the middle half of the samples in brackets, or of less than five the least and\nthe most; the ratio is ours over the peer's.\n\n", about)
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

// value is the median of samples as a person reads it, with how far they spread.
func value(of Samples) string {
	median := short(of.Median())
	switch n := len(of); {
	case n < 2:
		return median
	case n < 5:
		return fmt.Sprintf("%s (%s-%s)", median, short(of.Quantile(0)), short(of.Quantile(1)))
	}
	return fmt.Sprintf("%s (%s-%s)", median, short(of.Quantile(0.25)), short(of.Quantile(0.75)))
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
