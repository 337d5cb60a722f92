package agent

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"sallyport/executor/api"
)

// Variants are the values of config.variant.
var variants = []string{"off", "minimal", "low", "medium", "high", "xhigh"}

// refuse is a problem with one field of the request.
func refuse(status int, field, format string, args ...any) *api.Problem {
	return &api.Problem{
		Type:    "about:blank",
		Title:   http.StatusText(status),
		Status:  status,
		Detail:  fmt.Sprintf(format, args...),
		Code:    api.CodeInvalidRequest,
		Details: map[string]any{"field": field},
	}
}

// malformed refuses what cannot be read, unacceptable what can but will not do.
func malformed(field, format string, args ...any) *api.Problem {
	return refuse(http.StatusBadRequest, field, format, args...)
}

func unacceptable(field, format string, args ...any) *api.Problem {
	return refuse(http.StatusUnprocessableEntity, field, format, args...)
}

// withoutTool refuses what the original has and this agent has not.
func withoutTool(field, capability, text string) *api.Problem {
	p := unacceptable(field, "%s", text)
	p.Code, p.Details["requestedCapability"] = api.CodeCapability, capability
	return p
}

// near adds names to a problem that the caller may have meant.
func near(p *api.Problem, names []string) *api.Problem {
	if len(names) > 0 {
		p.Detail += "; did you mean " + strings.Join(names, " or ") + "?"
		p.Details["near"] = names
	}
	return p
}

// checkReasoner judges what all agents with a model of their own have in common.
// known lists the models that exist; where it is empty any model of a known provider will do.
func checkReasoner(in Input, agent string, known []string) *api.Problem {
	if strings.TrimSpace(in.Prompt) == "" {
		return malformed("prompt", "prompt is empty; it must say what the agent shall do")
	}
	if len(in.Config.Argv) > 0 {
		return unacceptable("config.argv", "config.argv is for the agent command, this is %s", agent)
	}
	if v := in.Config.Variant; v != "" && !slices.Contains(variants, v) {
		return near(unacceptable("config.variant", "config.variant is %.64q; it must be one of %s", v, strings.Join(variants, ", ")), similar(v, variants))
	}
	if p := checkModel(in, known); p != nil {
		return p
	}
	return checkSearch(in)
}

func checkModel(in Input, known []string) *api.Problem {
	const field = "config.model"
	model := in.Config.Model
	if model == "" {
		return malformed(field, "config.model is missing, and the operator has set no default; it must be provider/model, such as anthropic/claude-sonnet-4-6")
	}
	provider, id, ok := strings.Cut(model, "/")
	if !ok || provider == "" || id == "" || !printable(model) {
		return near(malformed(field, "config.model is %.64q; it must be provider/model, such as anthropic/claude-sonnet-4-6", model), named(model, known))
	}
	variables, ok := providers()[provider]
	if !ok {
		names := slices.Sorted(maps.Keys(providers()))
		p := near(unacceptable(field, "config.model names the provider %.64q, which is unknown", provider), similar(provider, names))
		p.Details["known"] = names
		return p
	}
	if len(known) > 0 && !slices.Contains(known, model) {
		return near(unacceptable(field, "config.model is %.128q; %s has no such model in this release of the agent", model, provider), similarModels(model, known))
	}
	if !slices.ContainsFunc(variables, func(v string) bool { return in.Keys[v] }) {
		p := unacceptable(field, "config.model is %.128q, but the operator has set no key for %s: %s is missing", model, provider, variables[0])
		p.Details["missing"] = variables[0]
		return p
	}
	return nil
}

func printable(s string) bool {
	return len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func checkSearch(in Input) *api.Problem {
	const field = "config.webSearchProvider"
	var names []string
	for _, p := range searchProviders {
		names = append(names, p.name)
	}
	want := in.Config.WebSearchProvider
	switch {
	case want != "" && !slices.Contains(names, want):
		return near(unacceptable(field, "%s is %.64q; it must be one of %s", field, want, strings.Join(names, ", ")), similar(want, names))
	case want != "" && !in.Config.WebSearch:
		return unacceptable(field, "%s is set, but config.webSearch is not", field)
	case !in.Config.WebSearch:
		return nil
	}
	if name, _ := search(in); name != "" {
		return nil
	}
	if want != "" {
		key := searchProviders[slices.Index(names, want)].key
		p := unacceptable(field, "%s is %s, but the operator has set no key for it: %s is missing", field, want, key)
		p.Details["missing"] = key
		return p
	}
	return unacceptable("config.webSearch", "config.webSearch is set, but the operator has set no key of a search provider: one of %s is needed",
		strings.Join(SearchKeys(), ", "))
}

// named are the models that have the name that was given without a provider.
func named(id string, known []string) []string {
	var found []string
	for _, m := range known {
		if _, rest, _ := strings.Cut(m, "/"); strings.EqualFold(rest, id) {
			found = append(found, m)
		}
	}
	return found[:min(len(found), maxNear)]
}

// similarModels are models of the same provider with a name close to the one given.
func similarModels(model string, known []string) []string {
	provider, _, _ := strings.Cut(model, "/")
	same := slices.DeleteFunc(slices.Clone(known), func(m string) bool { return !strings.HasPrefix(m, provider+"/") })
	return similar(model, same)
}

// maxNear is how many names are suggested at most.
const maxNear = 3

// similar are the names that come closest to the one given, the closest first;
// none where nothing comes close.
func similar(got string, names []string) []string {
	type match struct {
		name     string
		distance int
	}
	if len(got) > 200 { // no name is as long, and comparing takes the product of the lengths
		return nil
	}
	var matches []match
	for _, name := range names {
		if d := levenshtein.ComputeDistance(strings.ToLower(got), strings.ToLower(name)); d <= max(2, len(name)/4) {
			matches = append(matches, match{name, d})
		}
	}
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(a.distance, b.distance) })
	var found []string
	for _, m := range matches[:min(len(matches), maxNear)] {
		found = append(found, m.name)
	}
	return found
}
