package place

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sallyport/executor/tree"
)

// TestPressure has runs on two file systems, of which one is short of space.
func TestPressure(t *testing.T) {
	const floor = 100
	for _, tt := range []struct {
		name  string
		space tree.Space
		first string   // who ends first, of those that report each second
		after []string // who has ended half a minute later
	}{
		{"bytes", tree.Space{Bytes: floor - 1, Inodes: 1e9, AllInodes: 1e9}, "bytes", []string{"bytes", "files", "idle"}},
		{"files", tree.Space{Bytes: 1e9, Inodes: inodeFloor - 1, AllInodes: 1e9}, "files", []string{"bytes", "files", "idle"}},
		{"far below", tree.Space{Bytes: floor/2 - 1, Inodes: 1e9, AllInodes: 1e9}, "", []string{"bytes", "files", "idle"}},
		{"enough", tree.Space{Bytes: floor, Inodes: inodeFloor, AllInodes: 1e9}, "", nil},
		{"few files, as ever", tree.Space{Bytes: floor, Inodes: 50, AllInodes: 1000}, "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p pressure
				ended := map[string]time.Duration{}
				began := time.Now()
				var reports []func()
				join := func(device uint64, name string, size tree.Size) {
					w := &writer{device: device, end: func(tree.Space, string) { ended[name] = time.Since(began) }}
					p.join(w)
					reports = append(reports, func() { p.relieve(w, size, tt.space, floor) })
				}
				join(1, "idle", tree.Size{})
				join(1, "bytes", tree.Size{Bytes: 1000, Entries: 1})
				join(1, "files", tree.Size{Bytes: 10, Entries: 1000})
				elsewhere := &writer{device: 2, added: tree.Size{Bytes: 1e6, Entries: 1e6}, end: func(tree.Space, string) { ended["elsewhere"] = 0 }}
				p.join(elsewhere)
				first := ""
				for range 30 {
					for _, report := range reports {
						if Floor(floor).short(tt.space, 1) {
							report()
						}
					}
					if first == "" && len(ended) == 1 {
						first = slices.Collect(maps.Keys(ended))[0]
					}
					time.Sleep(spacePause)
				}
				if got := slices.Sorted(maps.Keys(ended)); first != tt.first || !slices.Equal(got, tt.after) {
					t.Errorf("first %q, then %v, want %q and %v", first, ended, tt.first, tt.after)
				}
			})
		})
	}
}
