package agent

import (
	"strings"

	"sallyport/entrypoint/wire"
)

// addSecrets gives a job the files of secrets.
func addSecrets(j *wire.Job, secrets []Secret) {
	for _, s := range secrets {
		if s.File {
			j.Files = append(j.Files, wire.File{Path: s.path(), Mode: 0o400, Content: []byte(s.Value)})
		}
	}
}

// path is where the file of a secret lies: in memory, and nobody else's.
func (s Secret) path() string { return "/run/sallyport/secrets/" + s.Name }

// KeySecrets are the secrets that a run's keys are: those of all model providers that
// there are, and the one of the search provider that is chosen.
func KeySecrets(in Input) (keys []Secret) {
	_, searched := search(in)
	for _, name := range append(ProviderKeys(), searched) {
		if in.Keys[name] {
			keys = append(keys, Secret{Name: name, Variable: name})
		}
	}
	return keys
}

// Clash returns a secret of a run whose variable the run has already, nil for none.
func Clash(p Program, in Input) *Secret {
	given := in.Secrets
	in.Secrets = nil
	taken := map[string]bool{}
	for _, variable := range p.Command(in).Env {
		name, _, _ := strings.Cut(variable, "=")
		taken[name] = true
	}
	for i, s := range given {
		if taken[s.Variable] {
			return &given[i]
		}
		taken[s.Variable] = true
	}
	return nil
}
