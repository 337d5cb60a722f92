package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"sallyport/firewall/account"
)

const (
	// callTimeout bounds a call whose context has no deadline of its own.
	callTimeout = 30 * time.Second
	// maxAnswer bounds the answer to a call: a receipt has at most 4096 rows.
	maxAnswer = 8 << 20
	// maxDecision bounds one line of a stream, in bytes: no gate writes more than some
	// hundred, even where a name is all escapes.
	maxDecision = 64 << 10
)

// A Client calls the gate. An error that is not an *Error means that the gate
// could not be reached or died on the way. The zero Client with a Socket is
// ready for use, also by several goroutines.
type Client struct {
	// Socket is the path of the gate's control socket.
	Socket string
}

// An Error is the gate's refusal of a call.
type Error struct{ Problem }

func (e *Error) Error() string {
	s := fmt.Sprintf("the gate answered %d %s", e.Status, e.Code)
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

// Lease opens the gate's listeners in cell id and returns when they are up.
func (c *Client) Lease(ctx context.Context, id string, l Lease) (Cell, error) {
	return call[Cell](ctx, c, http.MethodPut, cellPath(id), l)
}

// Release ends the lease of cell id: listeners are closed and connections are
// cut. It returns the final receipt when every decision is in it.
func (c *Client) Release(ctx context.Context, id string) (Cell, error) {
	return call[Cell](ctx, c, http.MethodDelete, cellPath(id), nil)
}

// Cell returns the lease of cell id with its receipt so far.
func (c *Client) Cell(ctx context.Context, id string) (Cell, error) {
	return call[Cell](ctx, c, http.MethodGet, cellPath(id), nil)
}

// Cells lists the leases, sorted by id, without their receipts' rows.
func (c *Client) Cells(ctx context.Context) ([]Cell, error) {
	list, err := call[CellList](ctx, c, http.MethodGet, "/v1/cells", nil)
	return list.Cells, err
}

// Health asks how the gate is.
func (c *Client) Health(ctx context.Context) (Health, error) {
	return call[Health](ctx, c, http.MethodGet, "/healthz", nil)
}

// Judge asks what a policy in force says of a connection.
func (c *Client) Judge(ctx context.Context, q Question) (Judgement, error) {
	return call[Judgement](ctx, c, http.MethodPost, "/v1/judge", q)
}

// Reload makes the gate read its allowlist again, for the leases that run and
// those to come; when it returns, the new policies are in force. If the file is
// not valid the gate keeps the policies that it has and the error's
// Code is CodeReloadInvalid.
func (c *Client) Reload(ctx context.Context) (Health, error) {
	return call[Health](ctx, c, http.MethodPost, "/v1/reload", nil)
}

// Decisions yields the decision records of one run, or of all if run is "":
// those that the gate still holds and, if follow is set, each further one as it
// is made. A gap in them is a record of KindDropped.
//
// The sequence ends without an error when the last lease of the run has ended,
// or, without follow, after the records so far. An error is the last thing that
// it yields, and means that records may be missing: the gate has gone away, or
// ctx has ended.
func (c *Client) Decisions(ctx context.Context, run string, follow bool) iter.Seq2[account.Record, error] {
	return func(yield func(account.Record, error) bool) {
		query := url.Values{"follow": {strconv.FormatBool(follow)}}
		if run != "" {
			query.Set("run", run)
		}
		resp, done, err := c.do(ctx, http.MethodGet, "/v1/decisions?"+query.Encode(), nil)
		if err != nil {
			yield(account.Record{}, err)
			return
		}
		defer done()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, maxDecision)
		for lines.Scan() {
			var r account.Record
			if err = json.Unmarshal(lines.Bytes(), &r); err != nil {
				break
			}
			if r.Kind == KindEnd || !yield(r, nil) {
				return
			}
		}
		// Only KindEnd is an end.
		err = cmp.Or(err, lines.Err(), io.ErrUnexpectedEOF)
		yield(account.Record{}, fmt.Errorf("control: the gate's stream of decisions broke: %w", err))
	}
}

func cellPath(id string) string { return "/v1/cells/" + url.PathEscape(id) }

// call makes one call and decodes its answer.
func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	resp, done, err := c.do(ctx, method, path, body)
	if err != nil {
		return out, err
	}
	defer done()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&out); err != nil {
		return out, fmt.Errorf("control: answer to %s %s: %w", method, path, err)
	}
	return out, nil
}

// do sends a request and returns its answer if it is a success. The caller
// calls done when it has read the body.
//
// Each request has a connection of its own: on a unix socket that costs
// microseconds, and none is left over from a gate that has been restarted.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, func(), error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, nil, fmt.Errorf("control: %s %s: %w", method, path, err)
		}
		payload = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://gate"+path, payload)
	if err != nil {
		return nil, nil, fmt.Errorf("control: %s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.transport().RoundTrip(req)
	if err != nil {
		return nil, nil, fmt.Errorf("control: the gate at %s: %s %s: %w", c.Socket, method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, nil, refusal(resp)
	}
	return resp, func() { resp.Body.Close() }, nil
}

// transport dials the socket whatever the URL says, and knows no proxy.
func (c *Client) transport() *http.Transport {
	return &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Socket)
		},
	}
}

// refusal is the error that an answer outside 2xx stands for.
func refusal(resp *http.Response) error {
	e := &Error{}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&e.Problem)
	if kind != ProblemType || err != nil {
		return fmt.Errorf("control: the gate answered %s without a problem document", resp.Status)
	}
	e.Status = resp.StatusCode
	return e
}
