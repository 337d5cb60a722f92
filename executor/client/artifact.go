package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Artifact opens a file that an execution left. The caller closes it. name is
// relative to the workspace, as in the result.
func (c *Client) Artifact(ctx context.Context, id, name string) (io.ReadCloser, error) {
	if id == "" {
		return nil, errNoID
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	resp, err := c.send(ctx, http.MethodGet, "/v1/executions/"+url.PathEscape(id)+"/artifacts/"+strings.Join(parts, "/"), "application/octet-stream", nil, nil)
	if err != nil {
		return nil, err
	}
	if err := c.refusal(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp.Body, nil
}
