package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/mod/sumdb/tlog"
)

// stored are hashes of a tree by their stored index, see tlog.StoredHashIndex: all of
// them, or its edge.
type stored map[int64]tlog.Hash

func (s stored) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		h, ok := s[index]
		if !ok {
			return nil, fmt.Errorf("the tree's hash %d is missing", index)
		}
		hashes[i] = h
	}
	return hashes, nil
}

// add adds the leaf n and returns the hashes that it completes, the leaf's first.
func (s stored) add(n int64, leaf tlog.Hash) ([]tlog.Hash, error) {
	hashes, err := tlog.StoredHashesForRecordHash(n, leaf, s)
	if err != nil {
		return nil, err
	}
	first := tlog.StoredHashIndex(0, n)
	for i, h := range hashes {
		s[first+int64(i)] = h
	}
	return hashes, nil
}

// trim leaves the edge of a tree of n leaves: what its root, and the next leaf, take.
func (s stored) trim(n int64) {
	keep := edge(n)
	for index := range s {
		if !slices.Contains(keep, index) {
			delete(s, index)
		}
	}
}

// edge are the stored indexes of the full subtrees that a tree of n leaves is made of.
func edge(n int64) []int64 {
	var indexes []int64
	var begin int64
	for level := 62; level >= 0; level-- {
		if n&(1<<level) != 0 {
			indexes = append(indexes, tlog.StoredHashIndex(level, begin>>level))
			begin += 1 << level
		}
	}
	return indexes
}

// tilesDir holds the tiles, laid out as those of Go's checksum database. They can be made
// again from the records.
const (
	tilesDir   = "tile"
	tileHeight = 8
	perTile    = 1 << tileHeight
)

// tiles are the files of the tree's hashes. They are read by tlog, which believes no
// hash that does not lead to the root.
type tiles struct{ root *os.Root }

func (tiles) Height() int                         { return tileHeight }
func (tiles) SaveTiles(_ []tlog.Tile, _ [][]byte) {}
func tilePath(level int, n int64) string {
	return tlog.Tile{H: tileHeight, L: level, N: n, W: perTile}.Path()
}

func (t tiles) ReadTiles(want []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range want {
		data, err := t.root.ReadFile(tilePath(tile.L, tile.N))
		size := tile.W * tlog.HashSize
		if err == nil && len(data) < size {
			err = fmt.Errorf("%s is short", tilePath(tile.L, tile.N))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, data[:size])
	}
	return all, nil
}

// write writes the hashes that the leaf n has completed into their tiles.
func (t tiles) write(n int64, hashes []tlog.Hash) error {
	for level := 0; level < len(hashes); level += tileHeight {
		at := n >> level
		if err := t.put(tilePath(level/tileHeight, at>>tileHeight), at%perTile, hashes[level]); err != nil {
			return err
		}
	}
	return nil
}

// put writes one hash of a tile, and makes the tile last once it is full.
func (t tiles) put(name string, at int64, h tlog.Hash) error {
	f, err := t.root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = t.root.MkdirAll(path.Dir(name), 0o700); err == nil {
			f, err = t.root.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(h[:], at*tlog.HashSize)
	if err == nil && at == perTile-1 {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// An EventTree hashes the events of a task, line by line, into a tree as that of the log:
// one line is shown to be among them without the others. The zero value has none.
type EventTree struct {
	count, bytes int64
	sum          hash.Hash   // of all bytes
	edge         []tlog.Hash // of the full subtrees, the largest first
}

// Add adds a line, with the newline at its end, which is no part of the leaf.
func (t *EventTree) Add(line []byte) {
	if t.sum == nil {
		t.sum = sha256.New()
	}
	t.sum.Write(line)
	t.bytes += int64(len(line))
	h := tlog.RecordHash(line[:max(0, len(line)-1)])
	for n := t.count; n&1 == 1; n >>= 1 {
		h = tlog.NodeHash(t.edge[len(t.edge)-1], h)
		t.edge = t.edge[:len(t.edge)-1]
	}
	t.edge = append(t.edge, h)
	t.count++
}

// Events are the lines so far; log says where they can be read.
func (t *EventTree) Events(log string) Events {
	e := Events{Log: log, Count: t.count, Bytes: t.bytes}
	root, sum := sha256.Sum256(nil), sha256.Sum256(nil)
	if t.count > 0 {
		sum = [sha256.Size]byte(t.sum.Sum(nil))
		root = t.edge[len(t.edge)-1]
		for _, left := range slices.Backward(t.edge[:len(t.edge)-1]) {
			root = tlog.NodeHash(left, root)
		}
	}
	e.Root, e.SHA256 = hex.EncodeToString(root[:]), hex.EncodeToString(sum[:])
	return e
}
