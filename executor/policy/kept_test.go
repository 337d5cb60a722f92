package policy

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestInstanceNeverWider begins a workflow instance under one combination of document,
// tenant, service and profiles and goes on with another: no later run comes out wider than
// anything that bore on the document of the first, whatever is said by then.
//
// probe: T1
// oracle: the JSON of the later policy against what each source of the first was made to say
func TestInstanceNeverWider(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	resolved, bounded := 0, 0
	for range 4 * worlds {
		first, later := newWorld(r), newWorld(r)
		ps, err := Parse(strings.NewReader(first.text), "p.yaml")
		if err != nil {
			t.Fatal(err)
		}
		kept, denial := ps.Keep(first.query, first.installed)
		if denial != nil {
			continue
		}
		if r.IntN(2) == 0 { // as workflows do it
			later.document = first.document
			later.say(first.query.Document.profile, "", true, false)
		}
		free, _ := later.resolve(t, nil)
		later.query.Kept = again(t, kept)
		e, denial := later.resolve(t, nil)
		if denial != nil {
			if denial.Rule == "" || denial.Detail == "" {
				t.Errorf("a denial without its reason: %+v", denial)
			}
			continue
		}
		resolved++
		if free == nil || free.Digest != e.Digest {
			bounded++
		}
		for who, c := range map[string]said{"document": first.document, "tenant": first.acme, "service": first.service, "profile": first.profiles[kept.Profile]} {
			for key := range c {
				if key != "profiles" && (who != "document" || key != "secrets") && !within(&e.EffectivePolicy, key, c) {
					t.Fatalf("%+v is wider in %s of the first %s\n%s\nlater %s", e.EffectivePolicy, key, who, first.text, later.text)
				}
			}
		}
	}
	if resolved < worlds/10 || bounded < resolved/4 {
		t.Errorf("only %d came out as anything, %d of them bounded by the instance: this says little", resolved, bounded)
	}
}

// again is what a database gives back.
func again(t *testing.T, kept *Kept) *Kept {
	t.Helper()
	text, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	read := new(Kept)
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	second, err := json.Marshal(read)
	if err != nil || string(second) != string(text) {
		t.Fatalf("%s came back as %s, %v", text, second, err)
	}
	for d, v := range kept.Bounds {
		if v != nil && reflect.TypeOf(v) != reflect.TypeOf(read.Bounds[d]) {
			t.Fatalf("%v came back as %T", Dimension(d), read.Bounds[d])
		}
	}
	return read
}

// TestInstance goes through what a later run may and may not.
func TestInstance(t *testing.T) {
	const file = `
version: 1
policyVersion: 7
default: build
profiles:
  build: {egress: [strict, release], tasks: [run.shell], time: 1h}
  publish: {egress: all, tasks: all}
`
	ps, err := Parse(strings.NewReader(file), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(security string) Ask {
		t.Helper()
		a, err := ReadBoth(nil, json.RawMessage(security), "opts")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	in := Installed{Egress: map[string]string{"strict": "", "release": "", "open": ""}, DefaultEgress: "strict"}
	kept, denial := ps.Keep(Query{Document: ask(`{"networkPolicy": "release", "sandbox": {"ttl": "PT10M"}}`)}, in)
	if denial != nil {
		t.Fatal(denial)
	}
	for security, rule := range map[string]string{
		``:                                     "",
		`{"executionProfile": "build"}`:        "",
		`{"networkPolicy": "release"}`:         "",
		`{"networkPolicy": "strict"}`:          "instance.egress",
		`{"executionProfile": "publish"}`:      "instance.profiles",
		`{"sandbox": {"ttl": "PT2H"}}`:         "",
		`{"sandbox": {"mode": "per-task"}}`:    "",
		`{"networkPolicy": "open"}`:            "profiles.build.egress",
		`{"executionProfile": "nowhere"}`:      "instance.profiles",
		`{"sandbox": {"idleTimeout": "PT1M"}}`: "",
	} {
		q := Query{Kept: kept}
		if security != "" {
			q.Document = ask(security)
		}
		e, denial := ps.Resolve(q, in)
		if rule != "" {
			if denial == nil || denial.Rule != rule || denial.Detail == "" {
				t.Errorf("%s: %+v, want %s", security, denial, rule)
			}
			continue
		}
		if denial != nil || e.NetworkPolicy != "release" || e.TTLMS != 600_000 || e.EffectiveProfile != "build" {
			t.Errorf("%s: %+v, %v", security, e, denial)
		}
		if strings.Contains(security, "PT2H") && (len(e.Narrowings) == 0 || e.Narrowings[0].Field != "time") {
			t.Errorf("%s: narrowings %+v", security, e.Narrowings)
		}
	}
	for _, text := range []string{`{"profile":"p","bounds":{"colour":["red"]}}`, `{"profile":"p","bounds":{"mode":"weaker"}}`, `{"profile":"p","bounds":{"time":"1h"}}`} {
		if err := json.Unmarshal([]byte(text), new(Kept)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}
