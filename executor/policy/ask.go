package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// An Ask is what a document or a task asks for, in either spelling or both:
// metadata.lightWorkflow.security, and security. The zero Ask asks for nothing.
type Ask struct {
	profile string
	bounds  Bounds
	fields  [dimensions]string // where each was said
}

// An AskError is a security object that cannot be understood.
type AskError struct{ Field, Problem string }

func (e *AskError) Error() string { return e.Field + ": " + e.Problem }

func wrong(field, format string, args ...any) error {
	return &AskError{strings.TrimPrefix(field, "."), fmt.Sprintf(format, args...)}
}

// ReadDocument reads what a workflow asks for: document is the object of that name in
// its definition, security what stands beside it. Both may be empty.
func ReadDocument(document, security json.RawMessage) (Ask, error) {
	a, err := ReadPlace(document, "document")
	if err == nil {
		err = a.read(security, "security")
	}
	return a, err
}

// ReadTask reads what one task asks for by its definition, which may be empty.
func ReadTask(task json.RawMessage) (Ask, error) { return ReadPlace(task, "task") }

// ReadBoth reads metadata and a security object, members of what errors call field.
func ReadBoth(metadata, security json.RawMessage, field string) (Ask, error) {
	return readMembers(map[string]json.RawMessage{"metadata": metadata, "security": security}, field)
}

// ReadPlace reads an object that carries both spellings, a document or a task; field is its
// name in errors.
func ReadPlace(raw json.RawMessage, field string) (Ask, error) {
	members, err := object(raw, field)
	if err != nil {
		return Ask{}, err
	}
	return readMembers(members, field)
}

func readMembers(members map[string]json.RawMessage, field string) (Ask, error) {
	var a Ask
	metadata, err := object(members["metadata"], field+".metadata")
	if err != nil {
		return Ask{}, err
	}
	const ours = "lightWorkflow"
	if err := errors.Join(spelt(members, field, "metadata", "security"), spelt(metadata, field+".metadata", ours)); err != nil {
		return Ask{}, err
	}
	field += "."
	own, err := object(metadata[ours], field+"metadata."+ours, "security", "artifacts")
	if err == nil {
		err = a.read(own["security"], field+"metadata."+ours+".security")
	}
	if err == nil {
		err = a.read(members["security"], field+"security")
	}
	return a, err
}

// spelt refuses names that are ours in other case: elsewhere they are taken for ours.
func spelt(members map[string]json.RawMessage, field string, ours ...string) error {
	for name := range members {
		for _, word := range ours {
			if name != word && strings.EqualFold(name, word) {
				return wrong(field+"."+name, "it is spelt %s", word)
			}
		}
	}
	return nil
}

// read adds what a security object asks for.
func (a *Ask) read(raw json.RawMessage, field string) error {
	m, err := object(raw, field, "executionProfile", "sandbox", "secrets", "networkPolicy", "agent", "github", "providerKeys", "budgets")
	if err != nil {
		return err
	}
	sandbox, err := object(m["sandbox"], field+".sandbox", "mode", "provider", "template", "reuse", "ttl", "idleTimeout", "reason", "isolation", "tier")
	if err != nil {
		return err
	}
	github, err := object(m["github"], field+".github", "profile", "repositories")
	if err != nil {
		return err
	}
	budgets, err := object(m["budgets"], field+".budgets", "costUsd", "tokens")
	if err != nil {
		return err
	}
	in := func(name string) string { return field + "." + name }
	return errors.Join(
		a.readProfile(m["executionProfile"], in("executionProfile")),
		a.level(SandboxMode, sandbox["mode"], in("sandbox.mode")),
		a.level(Strength, sandbox["isolation"], in("sandbox.isolation")),
		a.reuse(sandbox["reuse"], in("sandbox.reuse")),
		reason(sandbox["reason"], in("sandbox.reason")),
		a.name(Providers, sandbox["provider"], in("sandbox.provider")),
		a.name(Templates, sandbox["template"], in("sandbox.template")),
		a.name(Tiers, sandbox["tier"], in("sandbox.tier")),
		a.time(Time, sandbox["ttl"], in("sandbox.ttl")),
		a.time(IdleTime, sandbox["idleTimeout"], in("sandbox.idleTimeout")),
		a.name(Egress, m["networkPolicy"], in("networkPolicy")),
		a.name(Agents, m["agent"], in("agent")),
		a.name(GitHub, github["profile"], in("github.profile")),
		a.names(Repositories, github["repositories"], in("github.repositories")),
		a.names(Secrets, m["secrets"], in("secrets")),
		a.names(ProviderKeys, m["providerKeys"], in("providerKeys")),
		a.number(CostUSD, budgets["costUsd"], in("budgets.costUsd")),
		a.number(Tokens, budgets["tokens"], in("budgets.tokens")),
	)
}

// Limit asks for no more than v of a dimension; field is where it was said. Of what is
// asked for twice the stricter counts; names must agree.
func (a *Ask) Limit(d Dimension, v Value, field string) error {
	if before := a.bounds[d]; before != nil {
		if _, names := v.(Set); names && !(v.LessOrEqual(before) && before.LessOrEqual(v)) {
			return wrong(field, "it is %s here and %s in %s; give one of them", v, before, a.fields[d])
		}
		if before.LessOrEqual(v) {
			return nil
		}
	}
	a.bounds[d], a.fields[d] = v, strings.TrimPrefix(field, ".")
	return nil
}

// Name asks for one name of a dimension of names.
func (a *Ask) Name(d Dimension, name, field string) error {
	canonical, err := forms[d].check(name)
	if err != nil {
		return wrong(field, "%s: %v", quote(name), err)
	}
	return a.Limit(d, Of(canonical), field)
}

func (a *Ask) readProfile(raw json.RawMessage, field string) error {
	s, err := text(raw, field)
	switch {
	case err != nil || raw == nil:
		return err
	case !nameForm.MatchString(s):
		return wrong(field, "%s is not a name: %s", quote(s), nameFormText)
	case a.profile != "" && a.profile != s:
		return wrong(field, "it is %s here and %s elsewhere; give one of them", quote(s), quote(a.profile))
	}
	a.profile, a.fields[ProfileNames] = s, strings.TrimPrefix(field, ".")
	return nil
}

func (a *Ask) level(d Dimension, raw json.RawMessage, field string) error {
	s, err := text(raw, field)
	if err != nil || raw == nil {
		return err
	}
	levels := modes
	if d == Strength {
		levels = isolations
	}
	i := slices.Index(levels, s)
	switch {
	case i < 0:
		return wrong(field, "%s is none of %s%s", quote(s), strings.Join(levels, ", "), suggest(s, levels))
	case d == Strength:
		return a.Limit(d, Isolation(i), field)
	}
	return a.Limit(d, Mode(i), field)
}

// reuse asks for no sharing where it says so; more than an instance's tasks never do.
func (a *Ask) reuse(raw json.RawMessage, field string) error {
	const instance, never = "same-workflow-instance", "never"
	s, err := text(raw, field)
	switch {
	case err != nil || raw == nil || s == instance:
		return err
	case s == never:
		return a.Limit(SandboxMode, PerTask, field)
	}
	return wrong(field, "%s is neither %s nor %s: a sandbox is shared by nobody else", quote(s), instance, never)
}

const maxReason = 256 // bytes

func reason(raw json.RawMessage, field string) error {
	s, err := text(raw, field)
	if err == nil && (len(s) > maxReason || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })) {
		return wrong(field, "a reason has at most %d bytes, all printable", maxReason)
	}
	return err
}

func (a *Ask) name(d Dimension, raw json.RawMessage, field string) error {
	s, err := text(raw, field)
	if err != nil || raw == nil {
		return err
	}
	return a.Name(d, s, field)
}

const maxNames = 500

func (a *Ask) names(d Dimension, raw json.RawMessage, field string) error {
	if raw == nil {
		return nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil || list == nil || len(list) > maxNames {
		return wrong(field, "it must be an array of at most %d strings", maxNames)
	}
	return a.Names(d, list, field)
}

func (a *Ask) time(d Dimension, raw json.RawMessage, field string) error {
	s, err := text(raw, field)
	if err != nil || raw == nil {
		return err
	}
	v, err := parseDuration(s)
	if err != nil {
		return wrong(field, "%v", err)
	}
	return a.Limit(d, v, field)
}

func (a *Ask) number(d Dimension, raw json.RawMessage, field string) error {
	if raw == nil {
		return nil
	}
	if d == CostUSD {
		c, err := parseCost(string(raw))
		if err != nil {
			return wrong(field, "%v", err)
		}
		return a.Limit(d, c, field)
	}
	var n int64
	if err := json.Unmarshal(raw, &n); err != nil || n < 1 {
		return wrong(field, "it must be a whole number above 0")
	}
	return a.Limit(d, Count(n), field)
}

func text(raw json.RawMessage, field string) (string, error) {
	if raw == nil {
		return "", nil
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", wrong(field, "it must be a string")
	}
	return *s, nil
}

// object reads a JSON object: no name twice and, where known are given, no other ones,
// for a wish that is misspelt would be a wish that is lost. One that is absent has no
// members.
func object(raw json.RawMessage, field string, known ...string) (map[string]json.RawMessage, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, wrong(field, "it must be an object")
	}
	members := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, wrong(field, "it is not JSON: %v", err)
		}
		name := t.(string) // the decoder lets nothing else be a name
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, wrong(field+"."+name, "it is not JSON: %v", err)
		}
		if _, twice := members[name]; twice {
			return nil, wrong(field, "%s is given twice", quote(name))
		}
		if len(known) > 0 && !slices.Contains(known, name) {
			return nil, wrong(field, "unknown member %s%s; known here are %s", quote(name), suggest(name, known), strings.Join(known, ", "))
		}
		members[name] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, wrong(field, "it is not JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, wrong(field, "something stands behind the object")
	}
	return members, nil
}

// Names asks for names of a dimension.
func (a *Ask) Names(d Dimension, names []string, field string) error {
	var set Set
	for _, s := range names {
		name, err := forms[d].check(s)
		if err != nil {
			return wrong(field, "%s: %v", quote(s), err)
		}
		set.add(name)
	}
	return a.Limit(d, set, field)
}

// TakeSecrets asks for the secrets that b asks for: for a task that is all there is.
func (a *Ask) TakeSecrets(b Ask) {
	a.bounds[Secrets], a.fields[Secrets] = b.bounds[Secrets], b.fields[Secrets]
}
