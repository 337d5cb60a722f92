package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// content is the first maxBlocks blocks of a message. A plain string stands for
// one text; what has another form counts as empty.
type content struct {
	blocks []block
	more   bool // there were more
}

// UnmarshalJSON reads no more than it keeps: a block takes forty times the memory
// of the three bytes that an agent may write for it.
func (c *content) UnmarshalJSON(p []byte) error {
	*c = content{blocks: c.blocks[:0]} // the same member may come again, and again
	switch {
	case bytes.HasPrefix(p, []byte{'"'}):
		b := block{Type: "text"}
		if err := json.Unmarshal(p, &b.Text); err != nil {
			return err
		}
		c.blocks = append(c.blocks, b)
		return nil
	case !bytes.HasPrefix(p, []byte{'['}):
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(p))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		if c.more = len(c.blocks) == maxBlocks; c.more {
			return nil
		}
		c.blocks = append(c.blocks, block{})
		err := d.Decode(&c.blocks[len(c.blocks)-1])
		if odd := (*json.UnmarshalTypeError)(nil); err != nil && !errors.As(err, &odd) {
			return err
		}
	}
	return nil
}

// text is all that the content says.
func (c content) text() string {
	var parts []string
	for _, b := range c.blocks {
		switch b.Type {
		case "text":
			parts = append(parts, b.Text)
		case "image":
			parts = append(parts, "[image]")
		}
	}
	return strings.Join(parts, "\n")
}
