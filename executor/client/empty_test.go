package client_test

import (
	"testing"

	"sallyport/executor/client"
)

// TestEmptyID: an empty identifier asks nobody.
func TestEmptyID(t *testing.T) {
	c := &client.Client{Addr: "http://127.0.0.1:1"}
	for name, call := range map[string]func() error{
		"Get":      func() error { _, err := c.Get(t.Context(), ""); return err },
		"Cancel":   func() error { _, err := c.Cancel(t.Context(), ""); return err },
		"Artifact": func() error { _, err := c.Artifact(t.Context(), "", "a"); return err },
		"Events": func() (last error) {
			for _, err := range c.Events(t.Context(), "", 0, true) {
				last = err
			}
			return last
		},
	} {
		if err := call(); err == nil || err.Error() != "the identifier of the execution is empty" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
