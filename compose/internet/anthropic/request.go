package anthropic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// A Request is what the scripted model needs of a call to POST /v1/messages.
// The API has many more fields; they are accepted and ignored.
type Request struct {
	Model     string    `json:"model"`
	MaxTokens *int64    `json:"max_tokens"`
	Stream    bool      `json:"stream"`
	System    Content   `json:"system"`
	Messages  []Message `json:"messages"`
	Tools     []Tool    `json:"tools"`
	Thinking  struct {
		Type string `json:"type"` // enabled, adaptive or disabled
	} `json:"thinking"`

	// Thread, if present, asks for the beta in which the provider keeps the
	// conversation and the caller sends only what is new.
	Thread json.RawMessage `json:"thread"`

	size int // of the body, in bytes
}

// A Message is one turn of the conversation.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
}

// Content is a message's blocks; the API also takes a plain string for one text.
type Content []Block

// A Block is a part of a message. Kinds that the model does not read keep only
// their type.
type Block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  string          `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   Content         `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
}

// A Tool is one that the agent offers the model.
type Tool struct {
	Name        string `json:"name"`
	InputSchema struct {
		Properties map[string]Property `json:"properties"`
		Required   []string            `json:"required"`
	} `json:"input_schema"`
}

// A Property is the schema of one input of a tool.
type Property struct {
	Type  any        `json:"type"` // a string, or an array of them
	AnyOf []Property `json:"anyOf"`
}

func (p Property) nullable() bool {
	if p.Type == "null" || slices.ContainsFunc(p.AnyOf, Property.nullable) {
		return true
	}
	types, _ := p.Type.([]any)
	return slices.Contains(types, any("null"))
}

// UnmarshalJSON takes a string or an array of blocks.
func (c *Content) UnmarshalJSON(p []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(p), []byte(`"`)) {
		var text string
		if err := json.Unmarshal(p, &text); err != nil {
			return err
		}
		*c = Content{{Type: "text", Text: text}}
		return nil
	}
	var blocks []Block
	if err := json.Unmarshal(p, &blocks); err != nil {
		return err
	}
	*c = blocks
	return nil
}

// text is all that the content says, one block a line.
func (c Content) text() string {
	var parts []string
	for _, b := range c {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// ReadRequest reads and checks the body of a call. Its errors are *Error, in the
// provider's words.
func ReadRequest(r io.Reader) (*Request, error) {
	body, err := io.ReadAll(r)
	if err != nil {
		var tooBig *http.MaxBytesError
		if errors.As(err, &tooBig) {
			return nil, &Error{Status: http.StatusRequestEntityTooLarge, Type: "request_too_large",
				Message: "Request exceeds the maximum size"}
		}
		return nil, invalid("The request body could not be read: " + err.Error())
	}
	req := &Request{size: len(body)}
	if err := json.Unmarshal(body, req); err != nil {
		return nil, invalid("The request body is not valid JSON: " + err.Error())
	}
	if err := req.check(); err != nil {
		return nil, err
	}
	return req, nil
}

func (r *Request) check() error {
	switch {
	case r.Model == "":
		return invalid("model: Field required")
	case r.MaxTokens == nil:
		return invalid("max_tokens: Field required")
	case *r.MaxTokens < 1:
		return invalid("max_tokens: Input should be greater than or equal to 1")
	case len(r.Messages) == 0:
		return invalid("messages: at least one message is required")
	case r.Messages[0].Role != "user":
		return invalid(`messages: first message must use the "user" role`)
	}
	for i, m := range r.Messages {
		if err := m.check(i); err != nil {
			return err
		}
	}
	for i, t := range r.Tools {
		if t.Name == "" {
			return invalid(fmt.Sprintf("tools.%d.name: Field required", i))
		}
	}
	return r.checkPairs()
}

// check judges one message alone. Two turns of the same role in a row are
// allowed, as the provider joins them, and so are the beta's messages of the role
// system, which change settings in mid-conversation and may be empty.
func (m Message) check(i int) error {
	if m.Role == "system" {
		return nil
	}
	if m.Role != "user" && m.Role != "assistant" {
		return invalid(fmt.Sprintf("messages.%d.role: Input should be 'user' or 'assistant'", i))
	}
	if len(m.Content) == 0 {
		return invalid(fmt.Sprintf("messages.%d: %s messages must have non-empty content", i, m.Role))
	}
	for j, b := range m.Content {
		switch {
		case b.Type == "":
			return invalid(fmt.Sprintf("messages.%d.content.%d.type: Field required", i, j))
		case b.Type == "text" && b.Text == "":
			return invalid("messages: text content blocks must be non-empty")
		case b.Type == "tool_use" && (b.ID == "" || b.Name == ""):
			return invalid(fmt.Sprintf("messages.%d.content.%d.tool_use: id and name are required", i, j))
		}
	}
	return nil
}

// checkPairs demands that every tool use is answered by the message after it, and
// that every result answers a use in the message before it.
func (r *Request) checkPairs() error {
	var asked []string // by the message before
	for i, m := range r.Messages {
		if m.Role == "system" {
			continue
		}
		answered := map[string]bool{}
		for j, b := range m.Content {
			if b.Type != "tool_result" {
				continue
			}
			if m.Role != "user" || !slices.Contains(asked, b.ToolUseID) {
				return invalid(fmt.Sprintf("messages.%d.content.%d: unexpected `tool_use_id` found in `tool_result` blocks: %s. "+
					"Each `tool_result` block must have a corresponding `tool_use` block in the previous message.", i, j, b.ToolUseID))
			}
			answered[b.ToolUseID] = true
		}
		for _, id := range asked {
			if !answered[id] {
				return unanswered(i-1, id)
			}
		}
		asked = asked[:0]
		for _, b := range m.Content {
			if b.Type == "tool_use" {
				asked = append(asked, b.ID)
			}
		}
	}
	if len(asked) > 0 {
		return unanswered(len(r.Messages)-1, asked[0])
	}
	return nil
}

func unanswered(i int, id string) *Error {
	return invalid(fmt.Sprintf("messages.%d: `tool_use` ids were found without `tool_result` blocks immediately after: %s. "+
		"Each `tool_use` block must have a corresponding `tool_result` block in the next message.", i, id))
}
