package github

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

const (
	aSHA  = "1111111111111111111111111111111111111111"
	noSHA = "0000000000000000000000000000000000000000"
)

func pkt(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }

func TestParsePush(t *testing.T) {
	line := noSHA + " " + aSHA + " refs/heads/x"
	commands, capabilities, pack, err := parsePush([]byte(pkt("shallow "+aSHA) + pkt(line+"\x00report-status side-band-64k\n") + pkt(aSHA+" "+noSHA+" refs/tags/y") + "0000PACK..."))
	if err != nil || len(commands) != 2 || commands[1] != (command{aSHA, noSHA, "refs/tags/y"}) ||
		!strings.Contains(capabilities, "side-band-64k") || string(pack) != "PACK..." {
		t.Errorf("parsed %+v %q %q: %v", commands, capabilities, pack, err)
	}
	for _, bad := range []string{"", "00", "zzzz", "0003", "0001", "00ff", pkt(line), pkt("x") + "0000", pkt(strings.ToUpper(line)) + "0000",
		pkt(noSHA+" "+aSHA+" ../x") + "0000", pkt(noSHA+" --all refs/heads/x") + "0000"} {
		if commands, _, _, err := parsePush([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, commands)
		}
	}
}

func FuzzParsePush(f *testing.F) {
	f.Add([]byte(pkt(noSHA+" "+aSHA+" refs/heads/x\x00report-status") + "0000PACK"))
	f.Add([]byte("0000"))
	f.Add([]byte("ffff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		commands, _, pack, err := parsePush(body)
		if err != nil {
			return
		}
		if !bytes.HasSuffix(body, pack) {
			t.Error("the pack is not the end of the request")
		}
		for _, c := range commands {
			if !isObject(c.old) || !isObject(c.new) || !strings.HasPrefix(c.ref, "refs/") {
				t.Errorf("a command is %+v", c)
			}
		}
	})
}
