package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"sallyport/entrypoint/probe"
)

// Main itself takes over its process, so package entrypoint tests it in others.

func TestProbe(t *testing.T) {
	var out strings.Builder
	in := strings.NewReader(`{"probes":[{"id":"me","kind":"self"}]}`)
	if err := run(context.Background(), []string{"probe"}, in, &out); err != nil {
		t.Fatal(err)
	}
	var r probe.Result
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || r.ID != "me" || r.Self == nil {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestCanary(t *testing.T) {
	var out strings.Builder
	if err := run(context.Background(), []string{"canary"}, strings.NewReader(""), &out); err != nil {
		t.Fatal(err)
	}
	var hello probe.CanaryHello
	if err := json.Unmarshal([]byte(out.String()), &hello); err != nil || hello.Port == 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestUnknownCommand(t *testing.T) {
	for _, args := range [][]string{{"nosuch"}, {"probe", "extra"}, {""}} {
		var out strings.Builder
		if err := run(context.Background(), args, strings.NewReader(""), &out); err == nil || out.Len() > 0 {
			t.Errorf("%q: %v, %q", args, err, out.String())
		}
	}
}
