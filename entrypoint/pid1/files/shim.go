package files

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"sallyport/entrypoint/wire"
)

// PlaceShim makes a link to this program in wire.ShimDir, in place of whatever has
// its name.
func PlaceShim(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("the shim %q has no file name", name)
	}
	if err := linkSelf(name); err != nil {
		return fmt.Errorf("place the shim %q in %s: %w", name, wire.ShimDir, err)
	}
	return nil
}

func linkSelf(name string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := openDirs(wire.ShimDir)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	temporary := fmt.Sprintf(".sallyport-%016x", rand.Uint64())
	if err := unix.Symlinkat(self, dir, temporary); err != nil {
		return fmt.Errorf("make the link: %w", err)
	}
	if err := unix.Renameat(dir, temporary, dir, name); err != nil {
		unix.Unlinkat(dir, temporary, 0)
		return fmt.Errorf("put the link in its place: %w", err)
	}
	return nil
}
