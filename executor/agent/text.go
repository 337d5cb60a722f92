package agent

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Bounds of what a parser hands on, in bytes.
const (
	maxText   = 64 << 10 // the text of one event
	maxArgs   = 64 << 10 // the arguments of one use of a tool
	maxOutput = 1 << 20  // the output of a run
	maxName   = 256      // a tool's name or identifier, a model's name
)

// mark ends a text that was cut.
const mark = "\n[cut here]"

// cut returns at most n bytes of s, ending at a rune's border, and whether there was more.
func cut(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n], true
}

// marked is s cut to what an event may hold, with a mark where it was.
func marked(s string) string {
	if short, was := cut(s, maxText-len(mark)); was {
		return short + mark
	}
	return s
}

// short is a name cut to its bound.
func short(s string) string {
	s, _ = cut(s, maxName)
	return s
}

// boundArgs returns a tool's arguments as valid JSON within the bound. Long
// strings among them are cut; where that is not enough, all of it becomes one
// cut string.
func boundArgs(raw json.RawMessage) json.RawMessage {
	if len(raw) <= maxArgs {
		return raw
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err == nil {
		for name, v := range fields {
			if s, ok := v.(string); ok {
				if s, was := cut(s, maxArgs/4); was {
					fields[name] = s + mark
				}
			}
		}
		if p, err := json.Marshal(fields); err == nil && len(p) <= maxArgs {
			return p
		}
	}
	// Escapes may make a string up to six times as long.
	head, _ := cut(string(raw), maxArgs/8)
	p, err := json.Marshal(head + mark)
	if err != nil {
		return nil
	}
	return p
}

// A tally collects the output of a run up to its bound.
type tally struct {
	text      strings.Builder
	truncated bool
}

func (t *tally) add(s string) {
	if t.truncated {
		return
	}
	s, t.truncated = cut(s, maxOutput-t.text.Len())
	t.text.WriteString(s)
}
