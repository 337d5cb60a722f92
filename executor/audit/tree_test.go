package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
)

// TestEventTree compares the tree of events with the one that tlog makes of them.
func TestEventTree(t *testing.T) {
	var tree EventTree
	all, text := stored{}, ""
	for n := range int64(130) {
		root, err := tlog.TreeHash(n, all)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256([]byte(text))
		want := Events{Log: "events", Count: n, Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), Root: hex.EncodeToString(root[:])}
		if got := tree.Events("events"); got != want {
			t.Fatalf("%d events: %+v, want %+v", n, got, want)
		}
		line := fmt.Sprintf(`{"seq":%d}`+"\n", n)
		text += line
		tree.Add([]byte(line))
		if _, err := all.add(n, tlog.RecordHash([]byte(strings.TrimSuffix(line, "\n")))); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEdge finds the hashes that a tree's root is made of, and no other.
func TestEdge(t *testing.T) {
	all, trimmed := stored{}, stored{}
	for n := range int64(600) {
		leaf := tlog.RecordHash([]byte{byte(n), byte(n >> 8)})
		for _, s := range []stored{all, trimmed} {
			if _, err := s.add(n, leaf); err != nil {
				t.Fatal(err)
			}
		}
		trimmed.trim(n + 1)
		want, err := tlog.TreeHash(n+1, all)
		got, failed := tlog.TreeHash(n+1, trimmed)
		if err != nil || failed != nil || got != want || len(trimmed) > 10 {
			t.Fatalf("%d leaves: %v of %d hashes, %v; want %v", n+1, got, len(trimmed), failed, want)
		}
	}
}
