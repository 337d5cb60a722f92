package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// A peer is the bare HTTP server in a container of its own, confined, connected and
// published like the executor.
type peer struct {
	id  string // of its container
	url string
}

// startPeer starts the peer and waits until it answers.
func (b *bench) startPeer(ctx context.Context) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	id, err := docker(ctx, "run", "--detach", // not --rm, for it is restarted
		"--label", "org.sallyport.stack="+b.stack, "--label", "org.sallyport.role=bench",
		"--network", b.stack+"_api", "--publish", "127.0.0.1::"+strconv.Itoa(peerPort),
		"--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
		"--memory", "1g", "--memory-swap", "1g", "--pids-limit", "512",
		"--volume", self+":/bench:ro", "--entrypoint", "/bench", b.executor, "serve")
	if err != nil {
		return nil, fmt.Errorf("start the API's peer: %w", err)
	}
	p := &peer{id: id}
	if err := p.find(ctx); err != nil {
		_ = p.stop() // the first error says more
		return nil, fmt.Errorf("start the API's peer: %w", err)
	}
	return p, nil
}

// find asks where the peer was published and waits until it answers there.
func (p *peer) find(ctx context.Context) error {
	if err := p.locate(ctx); err != nil {
		return err
	}
	return await(ctx, func() error { return p.record(ctx, "/", http.Header{}, nil) })
}

func (p *peer) locate(ctx context.Context) error {
	published, err := docker(ctx, "port", p.id, strconv.Itoa(peerPort)+"/tcp")
	if err != nil {
		return err
	}
	p.url = "http://" + strings.Fields(published)[0]
	return nil
}

// record has the peer answer a path with these bytes from now on.
func (p *peer) record(ctx context.Context, path string, header http.Header, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, p.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("record an answer: %w", err)
	}
	for _, name := range recorded {
		if v := header.Values(name); v != nil {
			req.Header[name] = v
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("record an answer: %w", err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("record an answer: the peer says %s", resp.Status)
	}
	return nil
}

// stop removes the peer's container.
func (p *peer) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := docker(ctx, "rm", "--force", p.id)
	return err
}
