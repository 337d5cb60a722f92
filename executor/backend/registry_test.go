package backend_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"sallyport/executor/api"
	"sallyport/executor/backend"
)

type nothing struct{ backend.Cells }

func (nothing) Start(context.Context, backend.Spec) (*backend.Sandbox, error) { return nil, nil }
func (nothing) Check(context.Context) (api.BoundaryReport, error)             { return api.BoundaryReport{}, nil }

func whole(name string) backend.Backend {
	return backend.Backend{
		Name: name, Model: "container", Strength: backend.Container, Attachments: []backend.Attachment{backend.ByCell},
		Sandboxes: nothing{}, Cells: nothing{}, Boundary: nothing{}, Usable: func(context.Context) error { return nil },
	}
}

func TestRegistry(t *testing.T) {
	other := whole("other")
	other.Model, other.Attachments, other.Cells = "process", []backend.Attachment{backend.ByNone}, nil
	r, err := backend.NewRegistry(whole("docker"), other)
	if err != nil {
		t.Fatal(err)
	}
	if names := r.Names(); !slices.Equal(names, []string{"docker", "other"}) || r.Default().Name != "docker" || len(r.All()) != 2 {
		t.Errorf("names %v, default %q", names, r.Default().Name)
	}
	if b, ok := r.Get("other"); !ok || b.Isolation() != (api.Isolation{Backend: "other", Model: "process"}) {
		t.Errorf("other: %+v, %t", b, ok)
	}
	if _, ok := r.Get(""); ok {
		t.Error("a backend without a name is registered")
	}
	if got := r.Isolation("gone"); got != (api.Isolation{Backend: "gone"}) {
		t.Errorf("isolation of a backend that is gone: %+v", got)
	}
}

func TestRegistryRefuses(t *testing.T) {
	if _, err := backend.NewRegistry(); err == nil {
		t.Error("an empty registry was made")
	}
	if _, err := backend.NewRegistry(whole("a"), whole("a")); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Errorf("one name twice: %v", err)
	}
	for want, change := range map[string]func(*backend.Backend){
		"for its name":       func(b *backend.Backend) { b.Name = "../x" },
		"isolation model":    func(b *backend.Backend) { b.Model = "" },
		"strength":           func(b *backend.Backend) { b.Strength = 0 },
		"no attachment":      func(b *backend.Backend) { b.Attachments, b.Cells = nil, nil },
		"go together":        func(b *backend.Backend) { b.Cells = nil },
		"what starts its":    func(b *backend.Backend) { b.Sandboxes = nil },
		"whether it is":      func(b *backend.Backend) { b.Usable = nil },
		"proof of its bound": func(b *backend.Backend) { b.Boundary = nil },
	} {
		b := whole("docker")
		change(&b)
		if _, err := backend.NewRegistry(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
