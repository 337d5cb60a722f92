package statedir

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
)

// A Private says what no path of a request may touch, without symbolic links, as the
// paths of requests are compared.
type Private struct {
	Sessions string   // the directory of session logs, the default of requests
	Paths    []string // the executor's own directories and files, Sessions among them, and its secrets
}

// FindPrivate finds what is private. Secrets are the paths of files by what the operator calls
// them; rootOf returns the root under which requests may name a path, "" for none. A
// secret that lies under a root is an error: whoever may write above it could move it
// to where nothing is known of it.
func FindPrivate(state string, secrets map[string]string, rootOf func(path string) string) (Private, error) {
	state, err := filepath.EvalSymlinks(state)
	if err != nil {
		return Private{}, fmt.Errorf("resolve the state directory: %w", err)
	}
	private := Private{Sessions: filepath.Join(state, sessionsDir)}
	for _, name := range []string{executionsDir, workspacesDir, sessionsDir, cellsDir, tokensDir, secretsDir, gateDir, auditDir, tokenFile, lockFile, socketFile, databaseFile, databaseFile + "-wal", databaseFile + "-shm"} {
		private.Paths = append(private.Paths, filepath.Join(state, name))
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		places, err := placesOf(secrets[name])
		if err != nil {
			return Private{}, fmt.Errorf("find %s: %w", name, err)
		}
		for _, place := range places {
			if root := rootOf(place); root != "" {
				return Private{}, fmt.Errorf("%s is %s, which lies under the root %s, where requests may name directories for runs: put it elsewhere", name, place, root)
			}
		}
		private.Paths = append(private.Paths, places...)
	}
	return private, nil
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
