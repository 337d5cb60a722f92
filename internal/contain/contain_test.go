package contain

import (
	"errors"
	"strings"
	"testing"
)

// A holder is told of panics.
type holder struct{ err error }

func (h *holder) Panicked(err error) { h.err = err }

// Each way of containing a panic has its value and where it came from, and none of
// them says anything of code that did not panic.
func TestContain(t *testing.T) {
	for name, call := range map[string]func(f func()) error{
		"to": func(f func()) error {
			var h holder
			func() {
				defer To(&h)
				f()
			}()
			return h.err
		},
		"error": func(f func()) (err error) {
			defer Error(&err)
			f()
			return nil
		},
		"with": func(f func()) (err error) {
			defer With(func(p *Panic) { err = p })
			f()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := call(func() {}); err != nil {
				t.Errorf("control: %v", err)
			}
			var p *Panic
			err := call(blowUp)
			if !errors.As(err, &p) || p.Value != "a test" || !strings.Contains(p.Words(), "a test") || !strings.Contains(p.Words(), "blowUp") {
				t.Fatalf("%#v", err)
			}
			if said := err.Error(); strings.Contains(said, "a test") || strings.Contains(said, "\n") {
				t.Errorf("a client is told %q", said)
			}
		})
	}
}

func blowUp() { panic("a test") }
