package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"sallyport/executor/api"
)

// TestLyingExecutor fetches artifacts from an executor that is none: nothing is left
// of what it sends, and nothing lies outside of the directory.
//
// oracle: the files below a directory that holds the one written to
func TestLyingExecutor(t *testing.T) {
	const honest = "b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c" // of "foo\n"
	for name, artifact := range map[string]api.Artifact{
		"traversal":    {Name: "../out", Size: 4, SHA256: honest},
		"deep":         {Name: "a/../../out", Size: 4, SHA256: honest},
		"absolute":     {Name: "/out", Size: 4, SHA256: honest},
		"the root":     {Name: ".", Size: 4, SHA256: honest},
		"empty":        {Name: "", Size: 4, SHA256: honest},
		"too long":     {Name: "endless", Size: 4, SHA256: honest},
		"too short":    {Name: "a", Size: 5, SHA256: honest},
		"another":      {Name: "a", Size: 4, SHA256: strings.Repeat("0", 64)},
		"no size":      {Name: "a", Size: -1, SHA256: honest},
		"absent":       {Name: "absent", Size: 4, SHA256: honest},
		"controls":     {Name: "\x1b[2J/../../x", Size: 4, SHA256: honest},
		"the control:": {Name: "a/b", Size: 4, SHA256: honest},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch path := r.URL.Path; {
				case !strings.Contains(path, "/artifacts"):
					json.NewEncoder(w).Encode(api.Execution{ID: "x", State: api.StateFinished, Result: &api.Result{Artifacts: []api.Artifact{artifact}}})
				case strings.HasSuffix(path, "/absent"):
					http.Error(w, "no", http.StatusNotFound)
				case strings.HasSuffix(path, "/endless"):
					for { // until the caller has gone
						if _, err := w.Write(make([]byte, 1<<16)); err != nil {
							return
						}
					}
				default:
					w.Write([]byte("foo\n"))
				}
			}))
			defer srv.Close()
			t.Setenv("SALLYPORT_TOKEN", testToken)
			dir := t.TempDir()
			for _, force := range []string{"--force=false", "--force"} {
				var stdout, stderr bytes.Buffer
				code := run(t.Context(), []string{"artifacts", "x", "--addr", srv.URL, "-o", filepath.Join(dir, "in", "here"), force}, nil, &stdout, &stderr)
				if good := artifact.Name == "a/b"; good != (code == exitOK) || good != (stderr.Len() == 0) || strings.Contains(stderr.String(), "\x1b") {
					t.Errorf("%s: code %d, %q, %q", force, code, stdout.String(), stderr.String())
				}
			}
			filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.IsDir() && path != filepath.Join(dir, "in", "here", "a", "b") {
					t.Errorf("%s is left, %v", path, err)
				}
				return nil
			})
		})
	}
}
