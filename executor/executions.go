package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
	"sallyport/executor/store"
)

// maxKeyLength is the longest Idempotency-Key, in bytes.
const maxKeyLength = 255

// postExecution is the operation executeAgent.
func (e *Executor) postExecution(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	form, p := negotiate(r, jsonType, ndjsonType, sseType)
	if p != nil {
		writeProblem(w, p)
		return
	}
	key, p := idempotencyKey(r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	body, p := readBody(w, r)
	if p != nil {
		writeProblem(w, p)
		return
	}
	req, p := plan.Decode(body)
	if p != nil {
		writeProblem(w, p)
		return
	}
	entry, p := e.Submit(by, req, key)
	if p != nil {
		writeProblem(w, p)
		return
	}
	switch {
	case prefersAsync(r):
		w.Header().Set("Location", "/v1/executions/"+entry.Meta.ID)
		w.Header().Set("Preference-Applied", "respond-async")
		writeExecution(w, http.StatusAccepted, entry)
	case form == jsonType:
		awaitResult(w, r, entry)
	default:
		stream(w, r, entry, form, 0, true)
	}
}

// awaitResult answers with the result once it is there. A caller that goes away
// changes nothing about the run.
func awaitResult(w http.ResponseWriter, r *http.Request, entry *store.Entry) {
	select {
	case <-entry.Done():
	case <-r.Context().Done():
		if p := tokenEnded(r); p != nil {
			writeProblem(w, p)
		}
		return
	}
	res, err := entry.Result()
	if err != nil {
		writeProblem(w, unreadable(entry))
		return
	}
	writeJSON(w, http.StatusOK, res)
}

// readBody reads the body, in bounded time and size.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, *api.Problem) {
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != jsonType {
		return nil, api.NewProblem(http.StatusUnsupportedMediaType, api.CodeInvalidRequest, "the body must be sent as Content-Type: application/json")
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, plan.MaxRequest))
	control.SetReadDeadline(time.Time{}) // or the server would take the caller for gone
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return nil, api.NewProblem(http.StatusRequestEntityTooLarge, api.CodeInvalidRequest, fmt.Sprintf("the body is longer than %d bytes", tooLong.Limit))
	case err != nil:
		return nil, badRequest("the body could not be read")
	}
	return body, tokenEnded(r) // it may have been long under way
}

func idempotencyKey(r *http.Request) (string, *api.Problem) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	printable := !strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' })
	if len(values) > 1 || key == "" || len(key) > maxKeyLength || !printable {
		return "", badRequest(fmt.Sprintf("Idempotency-Key must be given once, with 1 to %d printable ASCII characters", maxKeyLength))
	}
	return key, nil
}

// prefersAsync reports whether the caller wants no more than a place to look
// (RFC 7240).
func prefersAsync(r *http.Request) bool {
	for _, v := range r.Header.Values("Prefer") {
		for p := range strings.SplitSeq(v, ",") {
			if name, _, _ := strings.Cut(p, ";"); strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
}

func writeExecution(w http.ResponseWriter, status int, entry *store.Entry) {
	x, err := entry.Execution()
	if err != nil {
		writeProblem(w, unreadable(entry))
		return
	}
	writeJSON(w, status, x)
}

func (e *Executor) getExecution(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	if entry, ok := e.entry(w, r, by); ok {
		writeExecution(w, http.StatusOK, entry)
	}
}

// deleteExecution cancels: 202 where the run now ends, 200 where it had ended.
func (e *Executor) deleteExecution(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	entry, ok := e.entry(w, r, by)
	if !ok {
		return
	}
	status := http.StatusOK
	if e.Cancel(by, entry.Meta.ID) {
		status = http.StatusAccepted
	}
	writeExecution(w, status, entry)
}

func (e *Executor) getArtifacts(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	entry, ok := e.entry(w, r, by)
	if !ok {
		return
	}
	list := api.ArtifactList{Artifacts: []api.Artifact{}}
	if entry.Finished() {
		res, err := entry.Result()
		if err != nil {
			writeProblem(w, unreadable(entry))
			return
		}
		list.Artifacts = res.Artifacts
	}
	writeJSON(w, http.StatusOK, list)
}

// getArtifact serves a file as what it is to us: bytes that an agent made.
func (e *Executor) getArtifact(w http.ResponseWriter, r *http.Request, by caller.Caller) {
	entry, ok := e.entry(w, r, by)
	if !ok {
		return
	}
	name := r.PathValue("name")
	if !entry.Finished() || !fs.ValidPath(name) {
		writeProblem(w, notFound("there is no such artifact"))
		return
	}
	f, err := entry.Open(name)
	if err != nil {
		writeProblem(w, notFound("there is no such artifact"))
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		writeProblem(w, notFound("there is no such artifact"))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
	h.Set("Content-Security-Policy", "sandbox")
	control := http.NewResponseController(w)
	control.SetWriteDeadline(time.Time{}) // large, and slow callers may be slow
	defer context.AfterFunc(r.Context(), func() { control.SetWriteDeadline(time.Now()) })()
	http.ServeContent(w, r, "", info.ModTime(), f)
}
