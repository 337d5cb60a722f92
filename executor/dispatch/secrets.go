package dispatch

import (
	"context"
	"sync"
	"time"

	"sallyport/executor/agent"
	"sallyport/executor/plan"
	"sallyport/executor/redact"
	"sallyport/executor/secrets"
)

// secretPatience bounds a look at all keys, or at the secrets of one request.
const secretPatience = 10 * time.Second

// A keyring knows which of the operator's provider and search keys there are.
type keyring struct {
	sources secrets.Sources
	// redactor knows their values from the first time that they are seen.
	redactor *redact.Redactor

	mu    sync.Mutex        // guards known
	known map[string]string // the value of each that the redactor knows, by name
}

// keyNames are the names that keys have.
func keyNames() []string { return append(agent.ProviderKeys(), agent.SearchKeys()...) }

// openKeys looks at all secrets, so that an operator's mistake shows before the first run.
func openKeys(c *Config) (*keyring, error) {
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	found, err := c.SecretSources.Check(ctx)
	if err != nil {
		return nil, err
	}
	for name, source := range found {
		c.Log.Info("secret found", "secret", name, "source", source)
	}
	k := &keyring{sources: c.SecretSources, known: map[string]string{}}
	values := map[string]string{}
	for name, value := range c.Redact {
		values[name] = value
	}
	for _, name := range keyNames() {
		if value, ok := k.sources.Have(ctx, name); ok {
			values[name], k.known[name] = secrets.Text(value), value
		}
	}
	k.redactor = redact.New(values)
	return k, nil
}

// there are the keys that there are now. One that cannot be read is there, too: a run that
// is to have it ends, and says why.
func (k *keyring) there() map[string]bool {
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	there := map[string]bool{}
	for _, name := range k.sources.Known(keyNames()) {
		value, ok := k.sources.Have(ctx, name)
		if ok {
			there[name] = true
			k.learn(name, value)
		}
	}
	return there
}

// learn has the redactor know a key's value, where it has one.
func (k *keyring) learn(name, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if value != "" && value != k.known[name] {
		k.redactor.Learn(name, secrets.Text(value))
		k.known[name] = value
	}
}

// service is what requests may ask for, with the keys that there are now.
func (d *Dispatcher) service() plan.Service {
	s := d.cfg.Service
	s.Keys = d.keyring.there()
	return s
}

// redactor takes out of what is kept of a run the secrets that it names, beside the keys.
func (k *keyring) redactorFor(names []string) *redact.Redactor {
	if len(names) == 0 {
		return k.redactor
	}
	ctx, cancel := context.WithTimeout(context.Background(), secretPatience)
	defer cancel()
	r := k.redactor.Fork()
	for _, name := range names {
		if value, err := k.sources.Get(ctx, name); err == nil {
			r.Learn(name, secrets.Text(value))
		}
	}
	return r
}

// redactorOf is the redactor of what is kept of a plan before its run.
func (d *Dispatcher) redactorOf(p *plan.Plan) *redact.Redactor {
	return d.keyring.redactorFor(p.Effective.Secrets)
}
