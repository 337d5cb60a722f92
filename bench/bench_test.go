package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"sallyport/bench/report"
)

func TestInterleaveTakesTurns(t *testing.T) {
	var order []string
	taker := func(name string) contender {
		var n float64
		return contender{name, func(context.Context) ([]float64, error) {
			order = append(order, name)
			n++
			return []float64{n, -n}, nil
		}}
	}
	taken, err := plan{warmups: 1, rounds: 2}.interleave(t.Context(), taker("a"), taker("b"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, ""); got != "abbaab" {
		t.Errorf("the order is %s, want abbaab", got)
	}
	for i := range taken {
		if !slices.Equal(taken[i][0], report.Samples{2, 3}) || !slices.Equal(taken[i][1], report.Samples{-2, -3}) {
			t.Errorf("contender %d has %v, want the samples of the rounds 2 and 3", i, taken[i])
		}
	}
}

func TestInterleaveEndsAtAFailure(t *testing.T) {
	broken := errors.New("broken")
	turns := 0
	_, err := plan{rounds: 5}.interleave(t.Context(), contender{"a", func(context.Context) ([]float64, error) {
		turns++
		return nil, broken
	}})
	if !errors.Is(err, broken) || turns != 1 {
		t.Errorf("%d turns, then %v; want one turn and its error", turns, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (plan{rounds: 1, pause: 1 << 40}).interleave(ctx, contender{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a plan whose context has ended: %v", err)
	}
}

func TestPeerRepeatsAnswers(t *testing.T) {
	srv := httptest.NewServer(&recorder{})
	defer srv.Close()
	p := &peer{url: srv.URL}
	if err := p.record(t.Context(), "/a", http.Header{"Content-Type": {"application/json"}, "X-Other": {"y"}}, []byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	header, body, err := newTarget(srv.URL+"/a", "").get(t.Context())
	if err != nil || string(body) != `{"a":1}` || header.Get("Content-Type") != "application/json" || header.Get("X-Other") != "" {
		t.Errorf("the peer answers %q with %v: %v", body, header, err)
	}
	if _, _, err := newTarget(srv.URL+"/b", "").get(t.Context()); err == nil {
		t.Error("the peer answers for a path that nobody recorded")
	}
	if err := p.record(t.Context(), "/big", nil, make([]byte, maxRecorded+1)); err == nil {
		t.Error("the peer took an answer that is too large")
	}
}

func TestLoad(t *testing.T) {
	var asked atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/changes" && asked.Add(1) > 50:
			_, _ = w.Write([]byte("another answer"))
		default:
			_, _ = w.Write([]byte("answer"))
		}
	}))
	defer srv.Close()

	good := newTarget(srv.URL+"/", "secret")
	if _, err := good.learn(t.Context()); err != nil {
		t.Fatal(err)
	}
	values, err := good.load(t.Context())
	if err != nil || len(values) != 2 || values[0] <= 0 || values[1] <= 0 {
		t.Errorf("load returns %v, %v; want a rate and a time", values, err)
	}
	changes := newTarget(srv.URL+"/changes", "secret")
	changes.want = good.want
	if _, err := changes.load(t.Context()); err == nil {
		t.Error("load counts answers of another length")
	}
	if _, err := newTarget(srv.URL+"/", "wrong").load(t.Context()); err == nil {
		t.Error("load counts refusals")
	}
}

func TestReadDownload(t *testing.T) {
	got, err := readDownload("small 0.003\nsmall 0.001\nsmall 0.002\nbulk 104857600\n")
	if err != nil || !slices.Equal(got, []float64{100, 2}) {
		t.Errorf("read %v, %v; want 100 MiB/s and 2 ms", got, err)
	}
	for _, bad := range []string{"", "bulk 1\n", "small 0.1\n", "small x\nbulk 1\n", "small 1\nbulk 1\nbulk 1\n"} {
		if got, err := readDownload(bad); err == nil {
			t.Errorf("%q reads as %v", bad, got)
		}
	}
}

func TestReadStatus(t *testing.T) {
	status, err := readStatus("1")
	if err != nil {
		t.Fatal(err)
	}
	if status["Pid"] != "1" {
		t.Errorf("the process 1 has the id %q", status["Pid"])
	}
	for _, bad := range []string{"", "0/../1", "-1"} {
		if _, err := readStatus(bad); err == nil {
			t.Errorf("the process %q has a state", bad)
		}
	}
	if got, err := mebibytes("2560 kB"); err != nil || got != 2.5 {
		t.Errorf("2560 kB are %v MiB, %v; want 2.5", got, err)
	}
	if _, err := mebibytes(""); err == nil {
		t.Error("no amount of memory is read as one")
	}
}

func TestCharged(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"memory/docker/a/memory.usage_in_bytes": "5242880\n",
		"memory/docker/a/memory.stat":           "inactive_file 9\ntotal_inactive_file 1048576\n",
		"docker/a/memory.current":               "3145728\n",
		"docker/a/memory.stat":                  "anon 4096\ninactive_file 1048576\n",
		"docker/b/memory.current":               "3145728\n",
		"docker/b/memory.stat":                  "anon 4096\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]float64{
		"13:pids:/docker/a\n4:memory:/docker/a\n0::/docker/a\n": 4, // version 1, and both together
		"0::/docker/a\n4:memory:/docker/a\n":                    4,
		"0::/docker/a\n":                                        2, // version 2
	} {
		if got, err := charged(root, groups); err != nil || got != want {
			t.Errorf("the groups %q are charged %v MiB, %v; want %v", groups, got, err, want)
		}
	}
	for _, groups := range []string{"", "0::/docker/b\n", "0::/docker/c\n", "memory\n"} {
		if got, err := charged(root, groups); err == nil {
			t.Errorf("the groups %q are charged %v MiB", groups, got)
		}
	}
}

func TestSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := parse([]string{"-token-file", file, "-resolver", "10.0.0.1"}, &bytes.Buffer{})
	if err != nil || b.Token != "secret" {
		t.Fatalf("the token is not read: %v", err)
	}
	for _, args := range [][]string{
		{}, {"-token-file", file}, {"-token-file", file + "x", "-resolver", "10.0.0.1"},
		{"-token-file", file, "-resolver", "10.0.0.1", "more"}, {"-token-file", file, "-resolver", "10.0.0.1", "-rounds", "0"},
	} {
		if _, err := parse(args, &bytes.Buffer{}); err == nil {
			t.Errorf("the arguments %q are taken", args)
		}
	}
}
