package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// peerPort is where the peer listens in its container.
const peerPort = 8080

// maxRecorded bounds an answer that the peer is told to repeat, in bytes.
const maxRecorded = 1 << 20

// serve is a bare server of net/http until ctx ends.
func serve(ctx context.Context, port int) error {
	srv := &http.Server{
		Addr: net.JoinHostPort("", strconv.Itoa(port)), Handler: &recorder{}, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	defer context.AfterFunc(ctx, func() { srv.Close() })()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A recorder answers a GET of a path with what was last PUT there: the body, and
// the headers that recorded names.
type recorder struct {
	answers sync.Map // path to recording
}

type recording struct {
	header http.Header
	body   []byte
}

// recorded are the headers of an answer that the peer repeats; net/http makes the
// others itself, on both sides.
var recorded = []string{"Content-Type", "X-Content-Type-Options", "Cache-Control"}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method == http.MethodPut {
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxRecorded))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		rec := recording{http.Header{}, body}
		for _, name := range recorded {
			if v := req.Header.Values(name); v != nil {
				rec.header[name] = v
			}
		}
		r.answers.Store(req.URL.Path, rec)
		return
	}
	answer, ok := r.answers.Load(req.URL.Path)
	if !ok {
		http.NotFound(w, req)
		return
	}
	rec := answer.(recording)
	for name, values := range rec.header {
		w.Header()[name] = values
	}
	_, _ = w.Write(rec.body) // a client that has gone
}
