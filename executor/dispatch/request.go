package dispatch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"sallyport/executor/api"
	"sallyport/executor/redact"
)

// digest identifies what is asked, whatever the order of its fields.
func digest(req api.Request) string {
	data, err := json.Marshal(req)
	if err != nil { // only a RawMessage that is no JSON, which Decode lets not through
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// withoutSecrets returns the request as it may be kept, as JSON. Its texts are redacted
// one by one: JSON spells some characters otherwise. The prompt, which may be most of it,
// is not taken through the decoder and back.
func withoutSecrets(req api.Request, redactor *redact.Redactor) ([]byte, error) {
	prompt := req.Prompt
	req.Prompt = ""
	var document map[string]any
	data, err := json.Marshal(req)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		err = d.Decode(&document)
	}
	if err != nil {
		return nil, fmt.Errorf("take the secrets out of a request: %w", err)
	}
	redacted(document, redactor.String)
	document["prompt"] = redactor.String(prompt)
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
