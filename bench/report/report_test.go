package report

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		of   Samples
		q    float64
		want float64
	}{
		{nil, 0.5, 0},
		{Samples{7}, 0.5, 7},
		{Samples{7}, 0.99, 7},
		{Samples{3, 1, 2}, 0.5, 2},
		{Samples{4, 1, 3, 2}, 0.5, 2.5},
		{Samples{5, 4, 3, 2, 1}, 0.25, 2},
		{Samples{5, 4, 3, 2, 1}, 1, 5},
		{Samples{5, 4, 3, 2, 1}, 0, 1},
	} {
		if got := c.of.Quantile(c.q); got != c.want {
			t.Errorf("the quantile %v of %v is %v, want %v", c.q, c.of, got, c.want)
		}
	}
}

// TestFinish prints what two programs have taken and finds it in one file: what is
// taken again takes the place of what was there, and a peer that was absent is no row.
func TestFinish(t *testing.T) {
	flags := NewFlags("bench x", io.Discard, 3)
	path := filepath.Join(t.TempDir(), "out", "results.json")
	if err := flags.Parse([]string{"-out", path, "-rounds", "2"}); err != nil || flags.Rounds != 2 {
		t.Fatal(err, flags.Rounds)
	}
	var table bytes.Buffer
	finish := func(what string, figures ...Figure) {
		t.Helper()
		if err := flags.Finish(&table, "this machine", what, figures); err != nil {
			t.Fatal(err)
		}
	}
	finish("", Beside("start", "ms", Samples{300, 305, 310, 315, 320}, "docker run", Samples{620}), Alone("stage", "ms", Samples{0.5}))
	for _, want := range []string{"this machine\n", "310 (305-315)  620   0.50   docker run\n", "stage   ms    0.50"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, table.String())
		}
	}
	finish("gate: ", Among("query", "us", []string{"gate", "a", "b"}, map[string][]float64{"gate": {4, 8}, "a": {2}, "b": {0}})...)
	finish("gate: ", Among("alone", "us", []string{"gate"}, map[string][]float64{"gate": {1}})...)
	finish("", Alone("stage", "ms", Samples{0.7}))
	if want := "gate: query  us    6.00 (4.00-8.00)  2.00  3.00   a\n"; !strings.Contains(table.String(), want) {
		t.Errorf("the table lacks %q:\n%s", want, table.String())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatalf("the results are %s: %v", data, err)
	}
	want := []map[string]any{
		{"metric": "start", "unit": "ms", "ours": 310.0, "peer": 620.0, "peerName": "docker run", "ratio": 0.5},
		{"metric": "gate: query", "unit": "us", "ours": 6.0, "peer": 2.0, "peerName": "a", "ratio": 3.0},
		{"metric": "gate: query", "unit": "us", "ours": 6.0, "peer": 0.0, "peerName": "b", "ratio": nil},
		{"metric": "gate: alone", "unit": "us", "ours": 1.0, "peer": nil, "peerName": "", "ratio": nil},
		{"metric": "stage", "unit": "ms", "ours": 0.7, "peer": nil, "peerName": "", "ratio": nil},
	}
	if len(list) != len(want) {
		t.Fatalf("the results are %s", data)
	}
	for i := range want {
		for k, v := range want[i] {
			if list[i][k] != v {
				t.Errorf("result %d has %s %v, want %v", i, k, list[i][k], v)
			}
		}
		if len(list[i]) != len(want[i]) {
			t.Errorf("result %d is %v, want the fields of %v only", i, list[i], want[i])
		}
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"more"}, {"-rounds", "0"}, {"-rounds", "x"}, {"-unknown"}, {"-h"}} {
		if err := NewFlags("bench x", io.Discard, 3).Parse(args); err == nil {
			t.Errorf("the arguments %q are taken", args)
		}
	}
	if f := NewFlags("bench x", io.Discard, 3); f.Parse(nil) != nil || f.Rounds != 3 || f.Out != "bench/out/results.json" {
		t.Errorf("the defaults are %+v", f)
	}
}
