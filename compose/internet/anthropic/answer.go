package anthropic

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An answer is a turn made ready to send.
type answer struct {
	id     string
	model  string
	blocks []Block
	stop   string
	usage  usage
	quiet  time.Duration
	pace   time.Duration
	ping   time.Duration
}

type usage struct {
	InputTokens              int `json:"input_tokens"`
	CacheCreationInputTokens int `json:"cache_creation_input_tokens"`
	CacheReadInputTokens     int `json:"cache_read_input_tokens"`
	OutputTokens             int `json:"output_tokens"`
}

// tokens is the usual rule of thumb: four bytes are a token.
func tokens(n int) int { return n/4 + 1 }

func (s *Server) answer(req *Request, t Turn) *answer {
	a := &answer{id: "msg_" + rand.Text(), model: req.Model, stop: t.Stop, quiet: t.Quiet, pace: s.Pace, ping: s.PingEvery}
	if a.ping <= 0 {
		a.ping = 5 * time.Second
	}
	if t.Thinking != "" && (req.Thinking.Type == "enabled" || req.Thinking.Type == "adaptive") {
		a.blocks = append(a.blocks, Block{Type: "thinking", Thinking: t.Thinking, Signature: rand.Text()})
	}
	if t.Text != "" {
		a.blocks = append(a.blocks, Block{Type: "text", Text: t.Text})
	}
	for _, u := range t.Tools {
		a.blocks = append(a.blocks, Block{Type: "tool_use", ID: "toolu_" + rand.Text(), Name: u.Name, Input: mustJSON(u.Input)})
	}
	if a.stop == "" {
		a.stop = "end_turn"
		if len(t.Tools) > 0 {
			a.stop = "tool_use"
		}
	}
	said := 0
	for _, b := range a.blocks {
		said += len(b.Text) + len(b.Thinking) + len(b.Input)
	}
	a.usage = usage{InputTokens: tokens(req.size), OutputTokens: tokens(said)}
	return a
}

// whole sends the answer as one JSON document.
func (a *answer) whole(w http.ResponseWriter, r *http.Request) error {
	if err := sleep(r.Context(), a.quiet); err != nil {
		return nil // the client has gone
	}
	if a.blocks == nil {
		a.blocks = []Block{}
	}
	return writeJSON(w, a.message(a.blocks, &a.stop, a.usage))
}

func (a *answer) message(content []Block, stop *string, u usage) any {
	return struct {
		ID           string  `json:"id"`
		Type         string  `json:"type"`
		Role         string  `json:"role"`
		Model        string  `json:"model"`
		Content      []Block `json:"content"`
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
		Usage        usage   `json:"usage"`
	}{a.id, "message", "assistant", a.model, content, stop, nil, u}
}

// stream sends the answer as server-sent events, piece by piece. It returns early
// and without error where the client has gone.
func (a *answer) stream(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	e := &events{w: w, flush: http.NewResponseController(w), ctx: r.Context(), pace: a.pace}
	first := a.usage
	first.OutputTokens = 1
	e.send("message_start", map[string]any{"message": a.message([]Block{}, nil, first)})
	e.send("ping", nil)
	for left := a.quiet; left > 0 && e.err == nil; left -= a.ping {
		e.err = sleep(r.Context(), min(left, a.ping))
		e.send("ping", nil)
	}
	for i, b := range a.blocks {
		e.block(i, b)
	}
	e.send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": a.stop, "stop_sequence": nil},
		"usage": a.usage,
	})
	e.send("message_stop", nil)
	return nil
}

// events writes server-sent events until one fails.
type events struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	ctx   context.Context
	pace  time.Duration
	err   error
}

func (e *events) send(name string, fields map[string]any) {
	if e.err != nil {
		return
	}
	data := map[string]any{"type": name}
	for k, v := range fields {
		data[k] = v
	}
	p, err := json.Marshal(data)
	if err != nil {
		e.err = fmt.Errorf("encoding the event %s: %w", name, err)
		return
	}
	if _, e.err = fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, p); e.err == nil {
		e.err = e.flush.Flush()
	}
}

func (e *events) block(i int, b Block) {
	start, kind, key, whole := b.opening()
	e.send("content_block_start", map[string]any{"index": i, "content_block": start})
	for _, piece := range pieces(whole) {
		e.send("content_block_delta", map[string]any{"index": i, "delta": map[string]any{"type": kind, key: piece}})
		if e.err == nil {
			e.err = sleep(e.ctx, e.pace)
		}
	}
	if b.Type == "thinking" {
		e.send("content_block_delta", map[string]any{"index": i,
			"delta": map[string]any{"type": "signature_delta", "signature": b.Signature}})
	}
	e.send("content_block_stop", map[string]any{"index": i})
}

// opening is the block as it begins, and what its deltas carry.
func (b Block) opening() (start map[string]any, kind, key, whole string) {
	switch b.Type {
	case "thinking":
		return map[string]any{"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking", b.Thinking
	case "tool_use":
		return map[string]any{"type": "tool_use", "id": b.ID, "name": b.Name, "input": struct{}{}},
			"input_json_delta", "partial_json", string(b.Input)
	}
	return map[string]any{"type": "text", "text": ""}, "text_delta", "text", b.Text
}

// pieces cuts a text into runs of about 40 bytes at rune borders.
func pieces(s string) []string {
	var out []string
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
		if b.Len() >= 40 {
			out = append(out, b.String())
			b.Reset()
		}
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
