package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport/entrypoint/github"
	"sallyport/entrypoint/probe"
)

// Main itself takes over its process, so package entrypoint tests it in others.

func TestProbe(t *testing.T) {
	var out strings.Builder
	in := strings.NewReader(`{"probes":[{"id":"me","kind":"self"}]}`)
	if err := run(context.Background(), []string{"entrypoint", "probe"}, nil, in, &out); err != nil {
		t.Fatal(err)
	}
	var r probe.Result
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || r.ID != "me" || r.Self == nil {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestCanary(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), []string{"entrypoint", "canary"}, nil, strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	var hello probe.CanaryHello
	if err := json.Unmarshal([]byte(out.String()), &hello); err != nil || hello.Port == 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestUnknownCommand(t *testing.T) {
	for _, args := range [][]string{{"entrypoint", "nosuch"}, {"entrypoint", "probe", "extra"}, {"entrypoint", ""}, {"/run/sallyport/bin/git-credential-sallyport"}} {
		var out strings.Builder
		if err := run(context.Background(), args, nil, strings.NewReader(""), &out); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, out.String())
		}
	}
}

// TestShims: called by a shim's name the program is git's helper, which keeps
// quiet about what it has nothing for.
func TestShims(t *testing.T) {
	var out strings.Builder
	args := []string{"/run/sallyport/bin/" + github.CredentialShim, "erase"}
	if err := run(context.Background(), args, nil, strings.NewReader(""), &out); err != nil || out.Len() > 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
	args = []string{github.GhShim, "--version"}
	err := run(context.Background(), args, []string{"PATH=/run/sallyport/bin"}, strings.NewReader(""), &out)
	if err == nil || !strings.Contains(err.Error(), "gh is not in this sandbox's image") {
		t.Errorf("gh without gh: %v", err)
	}
}
