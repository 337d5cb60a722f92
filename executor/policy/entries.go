package policy

import "sallyport/internal/strictyaml"

func (r *reader) provider(kv strictyaml.Pair) *provider {
	field := wordProviders + "." + kv.Key
	fields := r.Mapping(kv.Value, field, wordBackend)
	p := &provider{line: kv.At.Line}
	if n, ok := fields[wordBackend]; ok {
		p.backend = r.word(n, field+"."+wordBackend, nameForm, nameFormText)
	} else {
		r.Fault(kv.At, field, "has no backend: say which of the executor's it stands for")
	}
	return p
}

func (r *reader) template(kv strictyaml.Pair) *template {
	field := wordTemplates + "." + kv.Key
	fields := r.Mapping(kv.Value, field, wordImage, wordTier, wordAgent)
	t := &template{line: kv.At.Line}
	for word, to := range map[string]*string{wordTier: &t.tier, wordAgent: &t.agent} {
		if n, ok := fields[word]; ok {
			*to = r.word(n, field+"."+word, nameForm, nameFormText)
		}
	}
	if n, ok := fields[wordImage]; ok {
		t.image = r.word(n, field+"."+wordImage, imageForm, imageFormText)
	}
	return t
}

func (r *reader) secret(kv strictyaml.Pair) Secret {
	field := wordSecrets + "." + kv.Key
	fields := r.Mapping(kv.Value, field, wordEnv, wordFile)
	s := Secret{Name: kv.Key}
	for _, word := range []string{wordEnv, wordFile} {
		if n, ok := fields[word]; ok {
			s.Variable, s.File = r.word(n, field+"."+word, variableForm, variableFormText), word == wordFile
		}
	}
	if len(fields) != 1 {
		r.Fault(kv.At, field, `say how a task is given it: "env: GH_TOKEN" for a variable with the value, or "file: KEY_FILE" for one with the path of a file`)
	}
	return s
}

// A profile is what an operator has approved: what it does not name it does not have,
// but for what every run has.
func (r *reader) profile(kv strictyaml.Pair) *ceiling {
	c := &ceiling{who: "the profile " + kv.Key, field: wordProfiles + "." + kv.Key, line: kv.At.Line}
	r.bounds(c, kv.Value)
	for _, d := range []Dimension{Egress, Tasks} {
		if c.bounds[d] == nil {
			r.Fault(kv.At, c.field, "has no %s: each profile says it explicitly, if need be \"%s: all\"", d, d)
		}
	}
	if c.bounds[ProfileNames] != nil {
		r.Fault(strictyaml.Pos{Line: c.lines[ProfileNames], Column: 1}, c.field, "a profile has no profiles: they are a tenant's, or the service's")
	}
	for d, v := range map[Dimension]Value{SandboxMode: EffectfulTasks, GitHub: Set{}, Repositories: Set{}, Secrets: Set{}, Gateways: Set{}} {
		if c.bounds[d] == nil {
			c.bounds[d], c.lines[d] = v, c.line
		}
	}
	return c
}
