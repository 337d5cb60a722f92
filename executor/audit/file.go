package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// The log's files below its directory. A file of records has perFile lines and is named
// by the index of its first.
const (
	recordsDir = "records"
	lockFile   = "lock"
	perFile    = 256
)

// A line is a record in its file: the envelope, whose bytes are a leaf of the tree, and
// the signed checkpoint of the tree that it completes. One write, and one fsync, takes both.
type line struct {
	Index      int64           `json:"index"`
	Envelope   json.RawMessage `json:"envelope"`
	Checkpoint string          `json:"checkpoint"`
}

// encodeLine makes a line of JSON as the log and its exports have it.
func encodeLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

func recordsFile(index int64) string {
	return path.Join(recordsDir, fmt.Sprintf("%09d.ndjson", index/perFile*perFile))
}

// recordsFiles are the files of records, the oldest first.
func recordsFiles(root *os.Root) ([]string, error) {
	entries, err := fs.ReadDir(root.FS(), recordsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []string
	for i, e := range entries {
		name := path.Join(recordsDir, e.Name())
		if name != recordsFile(int64(i)*perFile) {
			return nil, fmt.Errorf("%s is there, and should be %s", filepath.Join(root.Name(), name), recordsFile(int64(i)*perFile))
		}
		files = append(files, name)
	}
	return files, nil
}

// wholeLines splits what a file holds into its lines and the length of all that were
// written whole. A line of which a power cut has left a part has no end, or zeros in it.
func wholeLines(data []byte) (lines [][]byte, size int64) {
	for {
		l, rest, ok := bytes.Cut(data, []byte("\n"))
		if !ok || bytes.IndexByte(l, 0) >= 0 {
			return lines, size
		}
		lines = append(lines, l)
		size += int64(len(l)) + 1
		data = rest
	}
}

// parseLine reads the line of the record with an index.
func parseLine(text []byte, index int64) (line, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("record %d: %w", index, err)
	}
	if l.Index != index {
		return l, fmt.Errorf("record %d: in its place is record %d", index, l.Index)
	}
	return l, nil
}

// records calls visit with every record in the files.
func records(root *os.Root, visit func(line) error) error {
	files, err := recordsFiles(root)
	if err != nil {
		return err
	}
	var index int64
	for i, file := range files {
		data, err := root.ReadFile(file)
		if err != nil {
			return err
		}
		lines, _ := wholeLines(data)
		if len(lines) != perFile && i < len(files)-1 || len(lines) > perFile {
			return fmt.Errorf("%s has %d records, not %d", filepath.Join(root.Name(), file), len(lines), perFile)
		}
		for _, text := range lines {
			l, err := parseLine(text, index)
			if err != nil {
				return err
			}
			if err := visit(l); err != nil {
				return err
			}
			index++
		}
	}
	return nil
}
