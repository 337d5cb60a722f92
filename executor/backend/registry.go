package backend

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"sallyport/executor/api"
)

// A Registry holds the backends that the operator has set up. It does not change.
type Registry struct{ backends []Backend }

// validName is what may be the value of a setting, a label and a part of a path.
var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// NewRegistry checks backends, of which the first is the default.
func NewRegistry(backends ...Backend) (*Registry, error) {
	if len(backends) == 0 {
		return nil, errors.New("no backend is registered")
	}
	for i, b := range backends {
		if err := b.check(); err != nil {
			return nil, fmt.Errorf("backend %q: %w", b.Name, err)
		}
		if slices.ContainsFunc(backends[:i], func(other Backend) bool { return other.Name == b.Name }) {
			return nil, fmt.Errorf("backend %q is registered twice", b.Name)
		}
	}
	return &Registry{slices.Clone(backends)}, nil
}

func (b Backend) check() error {
	switch byCell := slices.Contains(b.Attachments, ByCell); {
	case !validName.MatchString(b.Name):
		return errors.New("use lower-case letters, digits and hyphens for its name, 32 at most")
	case b.Model == "" || b.Strength < Process || b.Strength > Machine:
		return errors.New("its isolation model and strength are required")
	case len(b.Attachments) == 0:
		return errors.New("it has no attachment; a sandbox without network has \"none\"")
	case byCell != (b.Cells != nil):
		return errors.New("cells and the attachment \"cell\" go together")
	case b.Sandboxes == nil || b.Usable == nil || b.Boundary == nil:
		return errors.New("what starts its sandboxes, whether it is usable and the proof of its boundary are required")
	}
	return nil
}

// All are the backends, the default first.
func (r *Registry) All() []Backend { return slices.Clone(r.backends) }

// Default is the backend of requests that name none.
func (r *Registry) Default() Backend { return r.backends[0] }

// Get returns the backend of a name.
func (r *Registry) Get(name string) (Backend, bool) {
	i := slices.IndexFunc(r.backends, func(b Backend) bool { return b.Name == name })
	if i < 0 {
		return Backend{}, false
	}
	return r.backends[i], true
}

// Names are the names of the backends, the default first.
func (r *Registry) Names() []string {
	var names []string
	for _, b := range r.backends {
		names = append(names, b.Name)
	}
	return names
}

// Isolation is what results say of a backend. Of one that is not registered, as a record
// may name, the model is not known.
func (r *Registry) Isolation(name string) api.Isolation {
	b, ok := r.Get(name)
	if !ok {
		return api.Isolation{Backend: name}
	}
	return b.Isolation()
}
