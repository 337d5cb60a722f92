package main

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestRunRefuses(t *testing.T) {
	tests := []struct {
		args []string
		want string
	}{
		{nil, "the gate's address"},
		{[]string{"-gate", "gate.example"}, "the gate's address"},
		{[]string{"-gate", "fd00::2"}, "not an IPv4 address"},
		{[]string{"-gate", "127.0.0.1"}, "not an IPv4 address on a network"},
		{[]string{"-nosuch"}, "not defined"},
		{[]string{"-gate", "172.30.7.2", "extra"}, "unexpected argument"},
	}
	for _, tt := range tests {
		var stdout strings.Builder
		err := run(context.Background(), tt.args, &stdout, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) || stdout.Len() > 0 {
			t.Errorf("%q: error %v, output %q; want an error with %q and no output", tt.args, err, stdout.String(), tt.want)
		}
	}
}

// TestHoldNeedsNoPrivileges: the second half refuses to say ready as root or with
// any capability.
func TestHoldNeedsNoPrivileges(t *testing.T) {
	var stdout strings.Builder
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	err := run(ended, []string{hold}, &stdout, io.Discard)
	if err == nil || stdout.Len() > 0 {
		t.Errorf("error %v, output %q", err, stdout.String())
	}
}
