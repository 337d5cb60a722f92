package agent

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
)

// The files are data about pi: the providers are kept by hand, models.txt made from
// the pinned release by list-models.sh. The scripts read the providers' files, too.
var (
	//go:embed providers.txt
	providersFile string
	//go:embed search-providers.txt
	searchProvidersFile string
	//go:embed models.txt
	modelsFile string
)

// providers maps a provider's name to the variables that may hold its key.
var providers = sync.OnceValue(func() map[string][]string {
	found := map[string][]string{}
	for _, line := range dataLines(providersFile) {
		words := strings.Fields(line)
		found[words[0]] = words[1:]
	}
	return found
})

// Models are the models that the pinned release of pi knows, as provider/model, in order.
var Models = sync.OnceValue(func() []string { return dataLines(modelsFile) })

func dataLines(file string) []string {
	var lines []string
	for line := range strings.Lines(file) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// ProviderKeys are the names of all variables that can hold a model provider's
// key, in order.
func ProviderKeys() []string {
	var names []string
	for _, keys := range providers() {
		names = append(names, keys...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

type searchProvider struct{ name, key string }

// searchProviders are the providers of web search, in the order in which the
// first one that has a key is chosen.
var searchProviders = parseSearchProviders(searchProvidersFile)

func parseSearchProviders(file string) []searchProvider {
	var found []searchProvider
	for _, line := range dataLines(file) {
		name, key, _ := strings.Cut(line, " ")
		found = append(found, searchProvider{name, key})
	}
	return found
}

// SearchKeys are the names of the variables that hold the keys of web search,
// in the order in which the first that is set is chosen.
func SearchKeys() []string {
	var keys []string
	for _, p := range searchProviders {
		keys = append(keys, p.key)
	}
	return keys
}

// search chooses the search provider of a run: the one that it asks for, else the
// first with a key. The name is empty where the run may not or cannot search.
func search(in Input) (name, key string) {
	if !in.Config.WebSearch {
		return "", ""
	}
	for _, p := range searchProviders {
		if want := in.Config.WebSearchProvider; in.Keys[p.key] && (want == "" || want == p.name) {
			return p.name, p.key
		}
	}
	return "", ""
}

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
