package secrets

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"sallyport/executor/redact"
)

// patience bounds a look at all keys, or at the secrets of one request.
const patience = 10 * time.Second

// A Keyring knows which secrets of some names there are, such as provider keys, and how
// to take them out of what is kept of runs. It is safe for concurrent use.
type Keyring struct {
	sources Sources
	names   []string
	// Redactor knows their values from the first time that they are seen.
	Redactor *redact.Redactor

	mu    sync.Mutex        // guards known
	known map[string]string // the value of each that the redactor knows, by name
}

// OpenKeyring looks at all secrets, so that an operator's mistake shows before the first
// run. fixed are values beside those of names that are to be redacted, by name.
func OpenKeyring(sources Sources, names []string, fixed map[string]string, log *slog.Logger) (*Keyring, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := sources.Check(ctx)
	if err != nil {
		return nil, err
	}
	for name, source := range found {
		log.Info("secret found", "secret", name, "source", source)
	}
	k := &Keyring{sources: sources, names: names, known: map[string]string{}}
	values := maps.Clone(fixed)
	if values == nil {
		values = map[string]string{}
	}
	for _, name := range names {
		if value, ok := sources.Have(ctx, name); ok {
			values[name], k.known[name] = Text(value), value
		}
	}
	k.Redactor = redact.New(values)
	return k, nil
}

// There are the names that have a secret now. One that cannot be read is there, too: a run
// that is to have it ends, and says why.
func (k *Keyring) There() map[string]bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	there := map[string]bool{}
	for _, name := range k.sources.Known(k.names) {
		value, ok := k.sources.Have(ctx, name)
		if ok {
			there[name] = true
			k.learn(name, value)
		}
	}
	return there
}

// learn has the redactor know a key's value, where it has one.
func (k *Keyring) learn(name, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if value != "" && value != k.known[name] {
		k.Redactor.Learn(name, Text(value))
		k.known[name] = value
	}
}

// RedactorFor takes out of what is kept of a run the secrets that it names, beside those
// of the keyring.
func (k *Keyring) RedactorFor(names []string) *redact.Redactor {
	if len(names) == 0 {
		return k.Redactor
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := k.Redactor.Fork()
	for _, name := range names {
		if value, err := k.sources.Get(ctx, name); err == nil {
			r.Learn(name, Text(value))
		}
	}
	return r
}
