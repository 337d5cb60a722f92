package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/gate/control"
	"sallyport/gate/decisionlog"
)

// refuse makes the error that a call is answered with.
func refuse(status int, code, format string, args ...any) error {
	return &control.Error{Problem: control.Problem{
		Title: http.StatusText(status), Status: status, Code: code, Detail: fmt.Sprintf(format, args...),
	}}
}

// routes is the control API.
func (s *server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f func(http.ResponseWriter, *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, maxBody)
			answer, err := f(w, r)
			switch {
			case err != nil:
				s.writeProblem(w, err)
			case answer != nil:
				s.writeJSON(w, http.StatusOK, "application/json", answer)
			}
		})
	}
	handle("PUT /v1/cells/{id}", s.putCell)
	handle("GET /v1/cells/{id}", s.getCell)
	handle("DELETE /v1/cells/{id}", func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return s.release(r.Context(), r.PathValue("id"))
	})
	handle("GET /v1/cells", func(http.ResponseWriter, *http.Request) (any, error) { return s.list(), nil })
	handle("GET /v1/decisions", s.getDecisions)
	handle("POST /v1/judge", s.judge)
	handle("POST /v1/reload", func(http.ResponseWriter, *http.Request) (any, error) { return s.reload() })
	handle("GET /healthz", func(http.ResponseWriter, *http.Request) (any, error) { return s.health(), nil })
	mux.Handle("GET /metrics", s.Metrics.Handler())
	handle("/", noRoute)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would redirect a path such as /v1/cells/../x to a clean one.
		if p := r.URL.EscapedPath(); path.Clean(p) != p {
			_, err := noRoute(w, r)
			s.writeProblem(w, err)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func noRoute(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, refuse(http.StatusNotFound, control.CodeNotFound, "no route %s %s", r.Method, firewall.Escape(r.URL.Path, 200))
}

func (s *server) putCell(_ http.ResponseWriter, r *http.Request) (any, error) {
	want, err := decodeLease(r.Body)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, control.CodeInvalid, "the body is not a lease: %s", firewall.Escape(err.Error(), 300))
	}
	l, err := s.open(r.PathValue("id"), want)
	if err != nil {
		return nil, err
	}
	return l.cell(true), nil
}

func (s *server) getCell(_ http.ResponseWriter, r *http.Request) (any, error) {
	l, err := s.find(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return l.cell(true), nil
}

// judge says what a policy in force says of a connection, and writes no record of it:
// nobody has made one.
func (s *server) judge(_ http.ResponseWriter, r *http.Request) (any, error) {
	var q control.Question
	if err := decode(r.Body, &q, "policy", "host", "port", "addresses"); err != nil {
		return nil, refuse(http.StatusBadRequest, control.CodeInvalid, "the body is not a question: %s", firewall.Escape(err.Error(), 300))
	}
	e := s.edition.Load()
	p, ok := e.Policy(q.Policy)
	if !ok {
		return nil, refuse(http.StatusUnprocessableEntity, control.CodeNoPolicy, "the allowlist has no policy %s", firewall.Escape(q.Policy, 80))
	}
	d, refusals := p.Judge(q.Host, q.Port, q.Addresses)
	return control.Judgement{Digest: p.Digest(), Verdict: d.Verdict, Reason: d.Reason, Rule: d.Rule, Group: d.Group, Line: d.Line, Detail: d.Detail, Refusals: refusals}, nil
}

// decodeLease reads one lease and nothing behind it.
func decodeLease(r io.Reader) (l control.Lease, err error) {
	err = decode(r, &l, "run", "policy", "address", "prefix", "pool")
	return l, err
}

// decode reads one object with names of those known, and nothing behind it.
func decode(r io.Reader, to any, known ...any) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON value")
	}
	return checkNames(body, known)
}

// checkNames refuses what encoding/json lets pass in the object that body holds: a
// name that is not left, or in other case, or twice.
func checkNames(body []byte, left []any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("not an object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		i := slices.Index(left, any(name))
		if i < 0 {
			return fmt.Errorf("the name %q is unknown, or there twice", name)
		}
		left = slices.Delete(left, i, i+1)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
	}
	return nil
}

// getDecisions streams records as lines of JSON; see control.Client.Decisions.
func (s *server) getDecisions(w http.ResponseWriter, r *http.Request) (any, error) {
	run, follow, err := decisionsQuery(r.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, control.CodeInvalid, "%s", firewall.Escape(err.Error(), 300))
	}
	j := s.journalOf(run)
	if j == nil {
		return nil, refuse(http.StatusNotFound, control.CodeNotLeased, "run %s has no lease", run)
	}
	// A stream may last, and its reader may be slow: its end is that of either side.
	out := http.NewResponseController(w)
	if err := errors.Join(out.SetReadDeadline(time.Time{}), out.SetWriteDeadline(time.Time{})); err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	lines := json.NewEncoder(w)
	buf := make([]account.Record, 64)
	for b := (decisionlog.Batch{}); out.Flush() == nil; {
		b = j.Read(b.Next, buf)
		if b.Missed > 0 {
			buf[0], b.N, b.Next = dropped(run, b.Missed), 1, b.Next-uint64(b.N)
		}
		for _, rec := range buf[:b.N] {
			if lines.Encode(rec) != nil {
				return nil, nil // the reader has gone
			}
		}
		switch {
		case b.N > 0:
		case b.Complete || !follow:
			_ = lines.Encode(account.Record{Time: time.Now(), Run: run, Kind: control.KindEnd})
			return nil, nil
		case b.Over:
			return nil, nil
		default:
			select {
			case <-b.Changed:
			case <-r.Context().Done():
				return nil, nil
			}
		}
	}
	return nil, nil
}

// dropped is the line that stands for records that the reader did not get.
func dropped(run string, n uint64) account.Record {
	return account.Record{Time: time.Now(), Run: run, Kind: control.KindDropped,
		Detail: fmt.Sprintf("%d records were dropped: this reader is slow", n)}
}

func decisionsQuery(raw string) (run string, follow bool, err error) {
	q, err := url.ParseQuery(raw)
	if err != nil {
		return "", false, err
	}
	for key, values := range q {
		switch {
		case len(values) != 1:
			return "", false, fmt.Errorf("parameter %s is given more than once", key)
		case key == "run" && validRun.MatchString(values[0]):
			run = values[0]
		case key == "follow":
			if follow, err = strconv.ParseBool(values[0]); err != nil {
				return "", false, errors.New("follow must be true or false")
			}
		default:
			return "", false, fmt.Errorf("parameter %s is unknown or malformed", key)
		}
	}
	return run, follow, nil
}

func (s *server) writeProblem(w http.ResponseWriter, err error) {
	var e *control.Error
	if !errors.As(err, &e) {
		s.Log.Warn("control call failed", "error", err)
		e = &control.Error{Problem: control.Problem{
			Title: http.StatusText(http.StatusInternalServerError), Status: http.StatusInternalServerError, Detail: err.Error(),
		}}
	}
	s.writeJSON(w, e.Status, control.ProblemType, e.Problem)
}

func (s *server) writeJSON(w http.ResponseWriter, status int, kind string, v any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	// What fails here is the caller's connection.
	_ = json.NewEncoder(w).Encode(v)
}
