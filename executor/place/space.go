package place

import (
	"fmt"

	"sallyport/executor/api"
	"sallyport/executor/tree"
)

// A Floor is how many bytes a file system must have left. It must have inodes left, too:
// see inodeFloor.
type Floor int64

// inodeFloor is how many inodes a file system must have left, or a twentieth of all
// that it has if that is less.
const inodeFloor = 100_000

// short reports whether a file system has less left than one part in parts of what
// it must have.
func (f Floor) short(s tree.Space, parts int64) bool {
	return s.Bytes < int64(f)/parts || s.Inodes < min(inodeFloor, s.AllInodes/20)/parts
}

// Room says why no run can start that writes below dir, or nil: the file system has
// less left than it must have.
func (f Floor) Room(dir string) *api.Error {
	space, err := tree.SpaceAt(dir)
	switch {
	case err != nil:
		return StartFailed("look for space", err)
	case f.short(space, 1):
		return f.failure(space, "no run is started")
	}
	return nil
}

// failure tells of a file system that is short of space. Nothing is wrong with
// the request, so that it can be made again.
func (f Floor) failure(s tree.Space, consequence string) *api.Error {
	return &api.Error{
		Code: api.CodeDisk,
		Message: fmt.Sprintf("the disk has %d MiB and %d files left, less than it must have (%d MiB, and %d files or a twentieth): %s",
			s.Bytes>>20, s.Inodes, f>>20, inodeFloor, consequence),
		Retryable: true,
		Details:   map[string]any{"freeBytes": s.Bytes, "freeFiles": s.Inodes, "floorBytes": int64(f)},
	}
}
