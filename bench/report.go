package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"text/tabwriter"
)

// A figure is one line of the report. The values are medians.
type figure struct {
	Metric string   `json:"metric"`
	Unit   string   `json:"unit"`
	Ours   float64  `json:"ours"`
	Peer   *float64 `json:"peer"`     // null without a peer
	Name   string   `json:"peerName"` // empty without one
	Ratio  *float64 `json:"ratio"`    // ours over the peer's; null without a peer

	ours, peer samples // what the medians are of
}

// alone is a figure without a peer.
func alone(metric, unit string, ours samples) figure {
	return figure{Metric: metric, Unit: unit, Ours: ours.median(), ours: ours}
}

// beside is a figure with a peer.
func beside(metric, unit string, ours samples, name string, peer samples) figure {
	f := alone(metric, unit, ours)
	median := peer.median()
	f.Name, f.Peer, f.peer = name, &median, peer
	if median != 0 {
		ratio := f.Ours / median
		f.Ratio = &ratio
	}
	return f
}

// printTable prints the figures with the middle half of their samples.
func printTable(w io.Writer, about string, all []figure) error {
	fmt.Fprintf(w, "%s\nMedians, with the middle half of the samples in brackets; the ratio is ours over the peer's.\n\n", about)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "metric\tunit\tours\tpeer\tratio\tpeer is")
	for _, f := range all {
		peer, ratio := "", ""
		if f.Peer != nil {
			peer = value(*f.Peer, f.peer)
		}
		if f.Ratio != nil {
			ratio = strconv.FormatFloat(*f.Ratio, 'f', 2, 64)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Metric, f.Unit, value(f.Ours, f.ours), peer, ratio, f.Name)
	}
	return t.Flush()
}

// value is a median as a person reads it, with the middle half of its samples.
func value(median float64, of samples) string {
	if len(of) < 2 {
		return short(median)
	}
	return fmt.Sprintf("%s (%s-%s)", short(median), short(of.quantile(0.25)), short(of.quantile(0.75)))
}

// short has about three significant digits, more for large numbers.
func short(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// writeResults writes the figures to a file as a JSON list.
func writeResults(path string, all []figure) error {
	data, err := json.MarshalIndent(all, "", "  ")
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
