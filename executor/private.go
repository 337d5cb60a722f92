package executor

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// keepPrivate sets what no path of a request may touch. A secret that lies where such
// paths may point is refused at once: whoever may write above it could move it to where
// nothing is known of it.
func (c *Config) keepPrivate() error {
	state, err := filepath.EvalSymlinks(c.State) // as requests' paths are compared
	if err != nil {
		return fmt.Errorf("resolve the state directory: %w", err)
	}
	c.Service.Sessions = filepath.Join(state, sessionsDir)
	c.Service.Private = nil
	for _, name := range []string{executionsDir, workspacesDir, sessionsDir, cellsDir, tokensDir, gateDir, tokenFile, lockFile, SocketFile} {
		c.Service.Private = append(c.Service.Private, filepath.Join(state, name))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Secrets)) {
		places, err := placesOf(c.Secrets[name])
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		for _, place := range places {
			if root := c.Service.RootOf(place); root != "" {
				return fmt.Errorf("%s is %s, which lies under the root %s, where requests may name directories for runs: put it elsewhere", name, place, root)
			}
		}
		c.Service.Private = append(c.Service.Private, places...)
	}
	return nil
}

// placesOf are the file that a path leads to and the links on the way that can be
// told: the path itself, and its last step. What is not there yet has no more.
func placesOf(path string) ([]string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	places := []string{path}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		places = append(places, filepath.Join(dir, filepath.Base(path)))
	}
	if file, err := filepath.EvalSymlinks(path); err == nil {
		places = append(places, file)
	}
	slices.Sort(places)
	return slices.Compact(places), nil
}
