package forward

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
)

// relayResponse passes a response on as it comes, framed anew.
func (h *conn) relayResponse(req *request, resp *http.Response, last bool) error {
	write := func(p []byte) error { _, err := h.client.Write(p); return err }
	framing, inChunks := frame(req, resp)
	if inChunks {
		bw := bufio.NewWriter(h.client)
		cw := httputil.NewChunkedWriter(bw)
		write = func(p []byte) error {
			if _, err := cw.Write(p); err != nil {
				return err
			}
			return bw.Flush()
		}
	}
	if last {
		framing += "Connection: close\r\n"
	}
	if err := writeHead(h.client, resp, framing); err != nil {
		return err
	}
	if err := copyResponse(resp.Body, write); err != nil {
		return err
	}
	if inChunks {
		_, err := io.WriteString(h.client, "0\r\n\r\n")
		return err
	}
	return nil
}

// frame gives the field that says where the body of a response ends. Responses
// without a body may state the length that one would have had.
func frame(req *request, resp *http.Response) (line string, inChunks bool) {
	length := strconv.FormatInt(resp.ContentLength, 10)
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return "", false
	case req.method == http.MethodHead || resp.StatusCode == http.StatusNotModified:
		length = resp.Header.Get("Content-Length")
		if !allDigits(length) {
			return "", false
		}
	case resp.ContentLength < 0:
		return "Transfer-Encoding: chunked\r\n", true
	}
	return "Content-Length: " + length + "\r\n", false
}

func copyResponse(body io.Reader, write func([]byte) error) error {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	for {
		n, err := body.Read(*buf)
		if n > 0 {
			if err := write((*buf)[:n]); err != nil {
				return fmt.Errorf("writing to the client: %w", err)
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("reading the response's body: %w", err)
		}
	}
}

// writeHead writes the head of a response, less the fields that concern the
// connection to the upstream only, and with the lines of extra.
func writeHead(w io.Writer, resp *http.Response, extra string) error {
	for _, v := range resp.Header.Values("Connection") {
		for token := range strings.SplitSeq(v, ",") {
			resp.Header.Del(strings.TrimSpace(token))
		}
	}
	for name := range ours {
		resp.Header.Del(name)
	}
	var b strings.Builder
	b.WriteString("HTTP/1.1 " + resp.Status + "\r\n")
	if err := resp.Header.Write(&b); err != nil {
		return err
	}
	b.WriteString(extra + "\r\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing to the client: %w", err)
	}
	return nil
}
