package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// A record is what is written down of a token.
type record struct {
	Origin
	Run     string    `json:"run"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// suffix is that of a record's name, before which are the run and something random.
const suffix = ".json"

func (k *Keeper) write(name string, r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	k.hold(name)
	err = k.create(name, data)
	if err != nil {
		k.forget(name)
	}
	return err
}

// create writes a file whole and lastingly, or not at all.
func (k *Keeper) create(name string, data []byte) error {
	f, err := k.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = k.sync()
	}
	if err != nil {
		k.root.Remove(name) // the first error is the one that counts
	}
	return err
}

// sync has the directory's entries last.
func (k *Keeper) sync() error {
	dir, err := k.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// strike removes a record. That it may come back after a crash does no harm: to
// revoke a token twice is no error.
func (k *Keeper) strike(name string) error {
	if err := k.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("strike a token off: %w", err)
	}
	return nil
}
