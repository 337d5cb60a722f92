package redact

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// JSON returns a JSON document with each of its texts and names redacted, one by one: JSON
// spells some characters otherwise. One that holds no secret stays as it is, to the byte.
func (r *Redactor) JSON(text []byte) ([]byte, error) {
	var document any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	held := false
	clear := func(s string) string {
		clean := r.String(s)
		held = held || clean != s
		return clean
	}
	if document = redacted(document, clear); !held {
		return text, nil
	}
	return json.Marshal(document)
}

// redacted is a decoded JSON document with each of its texts redacted, in place.
func redacted(v any, redact func(string) string) any {
	switch v := v.(type) {
	case string:
		return redact(v)
	case []any:
		for i := range v {
			v[i] = redacted(v[i], redact)
		}
	case map[string]any:
		for _, name := range slices.Collect(maps.Keys(v)) {
			value := redacted(v[name], redact)
			delete(v, name)
			v[redact(name)] = value
		}
	}
	return v
}
