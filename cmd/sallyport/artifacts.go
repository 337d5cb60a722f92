package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"sallyport/cmd/sallyport/show"
	"sallyport/cmd/sallyport/terminal"
	"sallyport/executor/api"
	"sallyport/executor/client"
)

func (a *app) artifactsCommand() *cobra.Command {
	f := &fetch{app: a}
	var list bool
	cmd := &cobra.Command{
		Use:   "artifacts RUN [NAME...]",
		Short: "Fetch the files that a run has left",
		Long: `artifacts fetches the files that a run declared and the executor keeps: those that
are named, else all of them. They get their names below the directory, ./RUN unless
another is named, which is made if need be; nothing is written outside of it, and nothing overwritten unless
--force is given. What was written is printed, one path on a line.`,
		Example: `  sallyport artifacts 01m7xs3ty1hj73cr72jnejwmy0 --list
  sallyport artifacts 01m7xs3ty1hj73cr72jnejwmy0 REPORT.md out/log.txt -o results`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("RUN, the identifier of a run, is missing")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if list && (len(args) > 1 || cmd.Flags().Changed("output") || f.force) {
				return usage("--list takes nothing but RUN")
			}
			if f.dir == "" {
				if f.dir = args[0]; !filepath.IsLocal(f.dir) || filepath.Base(f.dir) != f.dir {
					return usage("%q is no identifier of a run", f.dir)
				}
			}
			return f.run(cmd.Context(), args[0], args[1:], list)
		},
	}
	cmd.Flags().StringVarP(&f.dir, "output", "o", "", "the directory to write to; ./RUN by default")
	cmd.Flags().BoolVar(&f.force, "force", false, "overwrite files that are there")
	cmd.Flags().BoolVarP(&list, "list", "l", false, "list them, with those that were not kept")
	return cmd
}

// A fetch is one call of the command.
type fetch struct {
	*app
	dir   string
	force bool

	client *client.Client
	root   *os.Root // dir
}

func (f *fetch) run(ctx context.Context, id string, names []string, list bool) error {
	var err error
	if f.client, err = f.app.client(); err != nil {
		return err
	}
	x, err := f.client.Get(ctx, id)
	if err != nil {
		return err
	}
	if x.Result == nil {
		return fmt.Errorf("run %s has not ended yet; it is %s", id, x.State)
	}
	if list {
		return show.Artifacts(f.stdout, x.Result.Artifacts)
	}
	wanted, err := f.choose(x.Result.Artifacts, names)
	if err != nil || len(wanted) == 0 {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o777); err != nil {
		return err
	}
	if f.root, err = os.OpenRoot(f.dir); err != nil {
		return err
	}
	defer f.root.Close()
	if err := f.free(wanted); err != nil {
		return err
	}
	for _, artifact := range wanted {
		if err := f.fetch(ctx, id, artifact); err != nil {
			return fmt.Errorf("fetch %q: %w", artifact.Name, err)
		}
		fmt.Fprintln(f.stdout, terminal.Safe(filepath.Join(f.dir, artifact.Name)))
	}
	return nil
}

// choose returns the artifacts of these names, or all that there are.
func (f *fetch) choose(all []api.Artifact, names []string) ([]api.Artifact, error) {
	var chosen []api.Artifact
	if len(names) == 0 {
		for _, artifact := range all {
			if artifact.Skipped == "" {
				chosen = append(chosen, artifact)
				continue
			}
			fmt.Fprintf(f.stderr, "not kept: %s: %s\n", terminal.Cell(artifact.Name), terminal.Cell(artifact.Skipped))
		}
		if len(all) == 0 {
			fmt.Fprintln(f.stderr, "the run has left no files; --artifact GLOB of sallyport run declares them")
		}
		return chosen, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(all, func(a api.Artifact) bool { return a.Name == name })
		switch {
		case i < 0:
			return nil, &exitError{code: exitUsage, err: fmt.Errorf("the run has no artifact %q; --list shows those that it has", name)}
		case all[i].Skipped != "":
			return nil, fmt.Errorf("the executor has not kept %q: %s", name, all[i].Skipped)
		case !slices.Contains(chosen, all[i]):
			chosen = append(chosen, all[i])
		}
	}
	return chosen, nil
}

// free looks, before anything is fetched, whether the places of all are free.
func (f *fetch) free(wanted []api.Artifact) error {
	for _, artifact := range wanted {
		if !fs.ValidPath(artifact.Name) || artifact.Name == "." { // whatever an executor says
			return fmt.Errorf("%q is no name for a file", artifact.Name)
		}
		if _, err := f.root.Lstat(artifact.Name); err == nil && !f.force {
			return inTheWay(filepath.Join(f.dir, artifact.Name))
		}
	}
	return nil
}

func inTheWay(path string) error {
	return fmt.Errorf("%s is there already; --force overwrites it", path)
}

// fetch writes one artifact, whole or not at all. With force it is written beside its
// place, so that a link there is replaced and not followed.
func (f *fetch) fetch(ctx context.Context, id string, artifact api.Artifact) error {
	if err := f.root.MkdirAll(path.Dir(artifact.Name), 0o777); err != nil {
		return err
	}
	name := artifact.Name
	if f.force {
		name = path.Join(path.Dir(name), ".sallyport-"+rand.Text())
	}
	file, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return inTheWay(filepath.Join(f.dir, name))
	}
	if err != nil {
		return err
	}
	err = errors.Join(f.copy(ctx, file, id, artifact), file.Close())
	if err == nil && f.force {
		err = f.root.Rename(name, artifact.Name)
	}
	if err != nil {
		f.root.Remove(name) // the first error is the one that counts
	}
	return err
}

// copy writes what the executor sends, which must be what the result says.
func (f *fetch) copy(ctx context.Context, w io.Writer, id string, artifact api.Artifact) error {
	body, err := f.client.Artifact(ctx, id, artifact.Name)
	if err != nil {
		return err
	}
	defer body.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(body, artifact.Size+1))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case n != artifact.Size || hex.EncodeToString(sum.Sum(nil)) != artifact.SHA256:
		return errors.New("what the executor sends is not what the run's result says")
	}
	return nil
}
