package policy

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Kept is what the document of a workflow gave an instance of it when its first run was
// accepted. Its later runs get no more, whatever document and profiles say by then.
type Kept struct {
	Profile string `json:"profile"`
	Bounds  Bounds `json:"bounds"`
}

// Keep computes what a workflow instance keeps: all that its document may have, whatever
// its first task asks for.
func (ps *Profiles) Keep(q Query, in Installed) (*Kept, *Denial) {
	q.Task, q.TaskType, q.Kept = Ask{}, "", nil
	q.Document.bounds[Secrets] = nil // of the task that asks for them
	r := ps.resolution(q, in)
	if denial := r.narrow(); denial != nil {
		return nil, denial
	}
	r.met[ProfileNames] = nil // the profile stands beside them
	return &Kept{Profile: r.profile, Bounds: r.met}, nil
}

func (k *Kept) source() source {
	return source{by: "instance", who: "the workflow instance, by its first run,", bounds: k.Bounds, rule: func(d Dimension) (string, string, int) {
		return "instance." + d.String(), "", 0
	}}
}

// MarshalJSON writes the bounds by the words of the file: a level as its word, a limit as a
// number (times in ns, costs in millionths of a US dollar), names as a list.
func (b Bounds) MarshalJSON() ([]byte, error) {
	m := map[string]any{}
	for d, v := range b {
		switch v := v.(type) {
		case nil:
		case Set:
			m[keys[d]] = v.List()
		case Mode, Isolation, Review:
			m[keys[d]] = v.String()
		default: // numbers
			m[keys[d]] = v
		}
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON wrote. What it does not know is an error: a bound
// that is lost would be one less.
func (b *Bounds) UnmarshalJSON(data []byte) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	*b = Bounds{}
	for key, raw := range m {
		d := slices.Index(keys[:], key)
		if d < 0 {
			return fmt.Errorf("unknown bound %s", quote(key))
		}
		var err error
		if b[d], err = readBound(top[d], raw); err != nil {
			return fmt.Errorf("the bound %s: %w", key, err)
		}
	}
	return nil
}

// readBound reads a value of the same type as another one.
func readBound(like Value, raw json.RawMessage) (Value, error) {
	level := func(words []string) (int, error) {
		var s string
		err := json.Unmarshal(raw, &s)
		i := slices.Index(words, s)
		if err == nil && i < 0 {
			err = fmt.Errorf("unknown level %s", quote(s))
		}
		return i, err
	}
	switch like.(type) {
	case Set:
		var names []string
		err := json.Unmarshal(raw, &names)
		if len(names) == 1 && names[0] == wordAll {
			return all, err
		}
		return Of(names...), err
	case Mode:
		i, err := level(modes)
		return Mode(i), err
	case Isolation:
		i, err := level(isolations)
		return Isolation(i), err
	case Review:
		i, err := level(reviews)
		return Review(i), err
	}
	var n int64
	err := json.Unmarshal(raw, &n)
	switch like.(type) {
	case Duration:
		return Duration(n), err
	case Cost:
		return Cost(n), err
	}
	return Count(n), err
}
