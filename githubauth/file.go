package githubauth

import (
	"bytes"
	"io"
	"os"

	"sallyport/internal/strictyaml"
)

// A FileError is one fault of a file of profiles: its place, and what would be right.
type FileError = strictyaml.FileError

// FileErrors are all faults of a file in the order of their lines, one on each line
// of Error. It is never returned empty as an error.
type FileErrors = strictyaml.FileErrors

// A reader reads one file and collects its faults.
type reader struct{ strictyaml.Reader }

func newReader(name string) *reader {
	return &reader{strictyaml.Reader{File: name, Rules: strictyaml.Rules{
		MaxBytes:  256 << 10, // this and the next are far above a real one
		MaxLevels: 16,
		Needs:     `it begins with "version: 1"`,
		Terse:     true,
		Quote:     quote,
		Show:      clean,
		Suggest:   suggest,
	}}}
}

// Load reads the file of profiles at path; see Parse.
func Load(path string) (*Profiles, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, strictyaml.Unreadable(path, err)
	}
	defer f.Close()
	return parse(path, f)
}

// Parse reads a file of profiles; name is for messages. The built-in profiles are
// in what it returns, too, and the file cannot change them other than by a ceiling
// that some of them are beyond. It is strict: unknown and duplicate keys, unknown
// permissions and levels, and a profile beyond the ceiling are errors. The error is
// of type FileErrors and holds every fault with its line.
func Parse(name string, text []byte) (*Profiles, error) {
	return parse(name, bytes.NewReader(text))
}

func parse(name string, file io.Reader) (*Profiles, error) {
	r := newReader(name)
	ps := DefaultProfiles()
	ps.file = name
	if body := r.Document(file); body != nil {
		r.profiles(body, ps)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return ps, nil
}
