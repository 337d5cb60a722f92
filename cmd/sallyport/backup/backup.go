// Package backup has the commands that take an executor's state out into a file and put it
// back.
package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport/executor/archive"
)

// Commands are backup and restore, of the state directory that dir says when they run.
// file takes their one argument.
func Commands(dir func() string, stdout io.Writer, file cobra.PositionalArgs) []*cobra.Command {
	return []*cobra.Command{{
		Use:   "backup FILE",
		Short: "Write the executor's state to a file, while it works",
		Long: `backup writes executions, Idempotency-Keys, tokens, what else the database holds, session
logs and the audit log to a new tar file, mode 0600. The executor may work meanwhile; runs
under way are lost to who restores them. The file holds the private key of the audit log.
Left out are the operator's token and files of settings, secrets, and what callers keep below the roots.

It reads the executor's state directory, which takes the rights of the user whose
executor it is.`,
		Example: "  sallyport backup /backups/sallyport-$(date +%F).tar",
		Args:    file,
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := write(cmd, args[0], dir())
			if err == nil {
				fmt.Fprintf(stdout, "%s: %.1f MiB\n", args[0], float64(size)/(1<<20))
			}
			return err
		},
	}, {
		Use:   "restore FILE",
		Short: "Put a backup into an empty state directory",
		Long: `restore reads what backup wrote into the executor's state directory, which must be empty or
absent; after a failure it is empty again. Then start the executor. Do not start two from one backup: their audit logs, signed
with one key, would each deny what the other says.`,
		Example: "  SALLYPORT_STATE=/var/lib/sallyport sallyport restore /backups/sallyport-2026-11-22.tar",
		Args:    file,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			if err := archive.Restore(cmd.Context(), f, dir()); err != nil {
				return err
			}
			fmt.Fprintf(stdout, "restored into %s\n", dir())
			return nil
		},
	}}
}

// write makes the file, whole or not at all.
func write(cmd *cobra.Command, path, dir string) (size int64, err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return 0, errors.Join(fmt.Errorf("%s is there already: name a new file", path), err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".backup-") // mode 0600
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	err = archive.Write(cmd.Context(), f, dir)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		size, err = f.Seek(0, io.SeekCurrent)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	if err := os.Link(f.Name(), path); err != nil { // which replaces nothing, as a rename would
		return 0, err
	}
	return size, os.Remove(f.Name())
}
