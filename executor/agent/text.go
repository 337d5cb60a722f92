package agent

import (
	"bytes"
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

// short is a name cut to its bound. It keeps nothing of a longer one.
func short(s string) string {
	if s, was := cut(s, maxName); was {
		return strings.Clone(s)
	}
	return s
}

// boundArgs returns a tool's arguments as valid JSON within the bound. Long
// strings among them are cut; where that is not enough, all of it becomes one
// cut string.
func boundArgs(raw json.RawMessage) json.RawMessage {
	if len(raw) <= maxArgs {
		return raw
	}
	if p := cutFields(raw); p != nil {
		return p
	}
	// Escapes may make a string up to six times as long.
	head, _ := cut(strings.ToValidUTF8(string(raw[:maxArgs/8]), ""), maxArgs/8)
	p, err := json.Marshal(head + mark)
	if err != nil {
		return nil
	}
	return p
}

// cutFields is the object raw with its long strings cut, or nil where that is not
// enough or raw is no object. No value is decoded but such strings: what another
// would take in memory has nothing to do with its length.
func cutFields(raw []byte) json.RawMessage {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil
	}
	out := []byte{'{'}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil
		}
		field, err := json.Marshal(name)
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, field...), ':'), cutString(value)...)
		if len(out) >= maxArgs {
			return nil
		}
	}
	return append(out, '}')
}

// cutString cuts a value that is a long string, and returns any other as it is.
func cutString(value json.RawMessage) json.RawMessage {
	if value[0] != '"' || len(value) <= maxArgs/4 {
		return value
	}
	var s string
	if json.Unmarshal(value, &s) != nil {
		return value
	}
	s, was := cut(s, maxArgs/4)
	if !was {
		return value
	}
	p, err := json.Marshal(s + mark)
	if err != nil {
		return value
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
