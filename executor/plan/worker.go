package plan

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/mod/sumdb/dirhash"

	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
)

// A Worker is code that a run brings along, by digests that we made of the very bytes that
// the sandbox gets.
type Worker struct {
	Name string
	// CodeSHA256 and DependenciesSHA256 are in hexadecimal: what "sha256sum FILE... | sha256sum"
	// prints of the files, sorted by their names. The second is empty without dependencies.
	CodeSHA256, DependenciesSHA256 string
}

// Bounds of a worker.
const (
	maxWorkerBytes = 1 << 20 // of all files with their paths
	maxWorkerFiles = 256
	maxWorkerPath  = 255
)

var workerName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// judgeWorker takes what a request carries of a worker.
func judgeWorker(p *Plan) *api.Problem {
	w := p.Request.Opts.Worker
	if w == nil {
		return nil
	}
	const field = "opts.worker"
	if p.Adapter.Name != agent.CommandName {
		return unacceptable(field, "opts.worker goes with the agent command, whose argv begins it; the agent is %s", p.Adapter.Name)
	}
	if !workerName.MatchString(w.Name) {
		return unacceptable(field+".name", "opts.worker.name is %.64q; a name is of lower-case letters, digits, ., - and _, at most 63 of them", w.Name)
	}
	if len(w.Code) == 0 {
		return unacceptable(field+".code", "opts.worker.code is missing: the text of each file by its path")
	}
	size := 0
	for part, files := range map[string]map[string]string{".code": w.Code, ".dependencies": w.Dependencies} {
		for path, text := range files {
			size += len(path) + len(text)
			if !workerPath(path) {
				return unacceptable(field+part, "opts.worker%s: %.64q is no path such as lib/resize.py", part, path)
			}
			if _, both := w.Dependencies[path]; both && part == ".code" {
				return unacceptable(field+part, "opts.worker has %.64q as code and as a dependency", path)
			}
		}
	}
	if n := len(w.Code) + len(w.Dependencies); n > maxWorkerFiles || size > maxWorkerBytes {
		return unacceptable(field, "opts.worker has %d files with %d bytes; it may have %d with %d", n, size, maxWorkerFiles, maxWorkerBytes)
	}
	for _, files := range []map[string]string{w.Code, w.Dependencies} {
		for _, path := range slices.Sorted(maps.Keys(files)) {
			p.Input.Worker = append(p.Input.Worker, wire.File{Path: wire.WorkerDir + "/" + path, Mode: 0o444, Content: []byte(files[path])})
		}
	}
	p.Worker = &Worker{Name: w.Name, CodeSHA256: digestOf(w.Code), DependenciesSHA256: digestOf(w.Dependencies)}
	return nil
}

func workerPath(path string) bool {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }
	return fs.ValidPath(path) && path != "." && len(path) <= maxWorkerPath && !strings.ContainsFunc(path, odd)
}

// digestOf is one digest of several files, whose paths are valid.
func digestOf(files map[string]string) string {
	if len(files) == 0 {
		return ""
	}
	open := func(name string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[name])), nil }
	sum, err := dirhash.Hash1(slices.Collect(maps.Keys(files)), open)
	raw, decodeErr := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	if err != nil || decodeErr != nil {
		panic(fmt.Sprintf("the digest of files in memory: %v, %v", err, decodeErr)) // no path has a newline
	}
	return hex.EncodeToString(raw)
}
