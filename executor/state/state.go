// Package state is the executor's database, one SQLite file: what is looked up lies in it,
// while bodies such as requests, events and artifacts are files. It opens the file, brings
// its tables up to date and copies it while it is used. Each table belongs to one package,
// which alone reads and writes it; migrations/ has them all.
package state

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver
)

//go:embed migrations/*.sql
var migrations embed.FS

// connections are enough for a writer and the readers beside it.
const connections = 4

// Open opens the database in a file, which it makes if need be, readable for its owner
// alone, and brings its tables up to date. A file of a newer release is refused. What a
// transaction has written when its Commit returns survives the end of the process and
// of the machine.
func Open(ctx context.Context, path string) (*sql.DB, error) {
	db, err := open(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	return db, nil
}

// Attach opens the database in a file that is there, which an executor may be using, as it
// is: no table of it is changed.
func Attach(ctx context.Context, path string) (*sql.DB, error) {
	_, err := os.Stat(path)
	var db *sql.DB
	if err == nil {
		db, err = connect(path)
	}
	if err == nil {
		if err = db.PingContext(ctx); err != nil {
			err = errors.Join(err, db.Close())
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the database %s: %w", path, err)
	}
	return db, nil
}

func open(ctx context.Context, path string) (*sql.DB, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // SQLite would ask the umask
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	db, err := connect(path)
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func connect(path string) (*sql.DB, error) {
	settings := url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(ON)"},
		"_txlock": {"immediate"}, // a reader that turned writer could not wait for another writer
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: settings.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// migrate brings the tables up to date.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	steps, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return err
	}
	now, newest, err := steps.GetVersions(ctx)
	if err != nil {
		return err
	}
	if now > newest {
		return fmt.Errorf("it is of a newer release: its tables are at version %d, this release knows %d", now, newest)
	}
	_, err = steps.Up(ctx)
	return err
}

// Copy writes what the database holds at this moment to a file that does not exist yet,
// while others read and write. Its owner alone can read it.
func Copy(ctx context.Context, db *sql.DB, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "VACUUM INTO ?", path)
	}
	if err != nil {
		return fmt.Errorf("copy the database to %s: %w", path, err)
	}
	return nil
}
