package plan

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"sallyport/entrypoint/wire"
	"sallyport/executor/agent"
	"sallyport/executor/api"
)

// Bounds of a request's parts.
const (
	minTimeout       = time.Second
	maxTaskIDLength  = 256
	maxModelLength   = 256
	maxContextLength = 1 << 20 // bytes, of the composed AGENTS.md
)

// unacceptable is a problem of a request that is understood and cannot be met.
func unacceptable(field, format string, args ...any) *api.Problem {
	return refuse(http.StatusUnprocessableEntity, api.CodeInvalidRequest, field, fmt.Sprintf(format, args...))
}

// unknownValue refuses a name that is not among those known.
func unknownValue(field, got string, known []string) *api.Problem {
	p := unacceptable(field, "%s is %.64q; it must be one of %s", field, got, strings.Join(known, ", "))
	p.Details["known"] = known
	return p
}

// denied refuses a capability that the executor does not have.
func denied(field, capability, why string) *api.Problem {
	p := refuse(http.StatusUnprocessableEntity, api.CodeCapability, field, why)
	p.Details["requestedCapability"] = capability
	return p
}

func (s *Service) judgePrompt(p *Plan) *api.Problem {
	if strings.TrimSpace(p.Request.Prompt) == "" {
		return invalid("prompt", "prompt is empty; it must say what the agent shall do")
	}
	if !short(p.Request.Opts.TaskID) {
		return unacceptable("opts.taskId", "opts.taskId must have at most %d bytes, all printable", maxTaskIDLength)
	}
	return judgeWorkflow(p.Request.Opts.Workflow)
}

func short(id string) bool {
	return len(id) <= maxTaskIDLength && !strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) })
}

func judgeWorkflow(w *api.Workflow) *api.Problem {
	if w == nil {
		return nil
	}
	for _, f := range []struct {
		name, value string
		required    bool
	}{{"definition", w.Definition, true}, {"version", w.Version, false}, {"instance", w.Instance, true}, {"task", w.Task, false}} {
		field := "opts.workflow." + f.name
		switch {
		case f.required && f.value == "":
			return unacceptable(field, "%s is required", field)
		case !short(f.value):
			return unacceptable(field, "%s must have at most %d bytes, all printable", field, maxTaskIDLength)
		}
	}
	return nil
}

// maxPhases is how many values config.models and config.variants may have.
const maxPhases = 64

// judgePhase chooses model and effort by the phase that the run is: the one that
// config.telemetry names, or the task of its workflow.
func judgePhase(p *Plan) *api.Problem {
	c := &p.Request.Config
	var phase string
	if w := p.Request.Opts.Workflow; w != nil {
		phase = w.Task
	}
	if t := c.Telemetry; t != nil {
		for field, value := range map[string]string{"config.telemetry.phaseName": t.PhaseName, "config.telemetry.workflowName": t.WorkflowName} {
			if !short(value) {
				return unacceptable(field, "%s must have at most %d bytes, all printable", field, maxTaskIDLength)
			}
		}
		phase = cmp.Or(t.PhaseName, phase)
	}
	if problem := choose(&c.Model, "config.model", c.Models, phase); problem != nil {
		return problem
	}
	return choose(&c.Variant, "config.variant", c.Variants, phase)
}

// choose puts a phase's value into the one that a run goes by.
func choose(one *string, field string, values map[string]string, phase string) *api.Problem {
	fallback, named := values["default"]
	switch {
	case len(values) > maxPhases:
		return unacceptable(field+"s", "%ss has %d phases; it may have %d", field, len(values), maxPhases)
	case named && *one != "" && *one != fallback:
		return invalid(field+"s", "%s is %.64q and %ss.default %.64q; they are two names of the same, so give one", field, *one, field, fallback)
	}
	*one = cmp.Or(values[phase], fallback, *one)
	return nil
}

// judgeCapabilities refuses what the original contract has and this executor
// has not.
func (s *Service) judgeCapabilities(p *Plan) *api.Problem {
	c := p.Request.Config
	for _, f := range []struct {
		field string
		given bool
	}{
		{"config.services", present(c.Services)},
		{"opts.githubAccess", p.Request.Opts.GithubAccess != nil && s.GitHub == nil},
	} {
		if f.given {
			name := f.field[strings.Index(f.field, ".")+1:]
			return denied(f.field, name, f.field+" is not offered by this executor; leave it out")
		}
	}
	return nil
}

func present(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

func (s *Service) judgeIsolation(p *Plan) *api.Problem {
	c := p.Request.Config
	if c.Sandbox != "" && c.Backend != "" && c.Sandbox != c.Backend {
		return invalid("config.sandbox", "config.sandbox is %.64q and config.backend %.64q; they are two names of the same, so give one", c.Sandbox, c.Backend)
	}
	field, wanted := "config.backend", c.Backend
	if c.Sandbox != "" {
		field, wanted = "config.sandbox", c.Sandbox
	}
	switch {
	case wanted == "":
		wanted = s.Backends[0]
	case slices.Contains(s.Backends, wanted):
	case wanted == "gondolin" || wanted == "none":
		return denied(field, wanted, fmt.Sprintf("the backend %q is not offered by this executor; use %q", wanted, s.Backends[0]))
	default:
		return unknownValue(field, wanted, s.Backends)
	}
	p.Backend = wanted
	p.Image = s.Images[0]
	if c.SandboxImage != "" {
		if !slices.Contains(s.Images, c.SandboxImage) {
			return unknownValue("config.sandboxImage", c.SandboxImage, s.Images)
		}
		p.Image = c.SandboxImage
	}
	i := 0
	if c.Tier != "" {
		if i = slices.IndexFunc(s.Tiers, func(t Tier) bool { return t.Name == c.Tier }); i < 0 {
			return unknownValue("config.tier", c.Tier, tierNames(s.Tiers))
		}
	}
	p.Tier, p.Limits = s.Tiers[i].API(), s.Tiers[i].Limits
	return nil
}

func tierNames(tiers []Tier) []string {
	var names []string
	for _, t := range tiers {
		names = append(names, t.Name)
	}
	return names
}

// The policies that a request gets without naming one.
const (
	strictPolicy = "strict"
	openPolicy   = "open"
)

// Offered are those of the gate's policies that a request may name.
func (s *Service) Offered(policies []string) []string {
	if len(s.Policies) == 0 {
		return policies
	}
	return slices.DeleteFunc(slices.Clone(policies), func(name string) bool { return !slices.Contains(s.Policies, name) })
}

func (s *Service) judgePolicy(p *Plan, policies []string) *api.Problem {
	c := p.Request.Config
	p.Policy = strictPolicy
	field := "config.egress"
	if c.UnrestrictedEgress {
		if c.Egress != "" && c.Egress != openPolicy {
			return invalid("config.unrestrictedEgress", "config.unrestrictedEgress contradicts config.egress %.64q; give one of them", c.Egress)
		}
		p.Policy, field = openPolicy, "config.unrestrictedEgress"
	} else if c.Egress != "" {
		p.Policy = c.Egress
	}
	offered := s.Offered(policies)
	var why string
	switch {
	case slices.Contains(offered, p.Policy):
		return nil
	case slices.Contains(policies, p.Policy):
		why = fmt.Sprintf("the policy %.64q is not offered by this executor; use one of %s", p.Policy, strings.Join(offered, ", "))
	default:
		why = fmt.Sprintf("the gate's allowlist has no policy %.64q; it has %s", p.Policy, strings.Join(offered, ", "))
	}
	problem := refuse(http.StatusUnprocessableEntity, api.CodePolicyDenied, field, why)
	problem.Details["known"] = offered
	return problem
}

func (s *Service) judgeTimeout(p *Plan) *api.Problem {
	p.Limits.WallClock = s.DefaultTimeout
	ms := p.Request.Config.TimeoutMS
	if ms == 0 {
		return nil
	}
	if ms < minTimeout.Milliseconds() || ms > s.MaxTimeout.Milliseconds() {
		return unacceptable("config.timeoutMs", "config.timeoutMs is %d; it must be between %d and %d", ms, minTimeout.Milliseconds(), s.MaxTimeout.Milliseconds())
	}
	p.Limits.WallClock = time.Duration(ms) * time.Millisecond
	return nil
}

func judgeArtifacts(p *Plan) *api.Problem {
	globs := p.Request.Config.Artifacts
	if err := wire.CheckGlobs(globs); err != nil {
		return unacceptable("config.artifacts", "config.artifacts: %v", err)
	}
	p.Artifacts = globs
	return nil
}

func (s *Service) judgeAgent(p *Plan) *api.Problem {
	if len(p.Request.Config.Model) > maxModelLength {
		return unacceptable("config.model", "config.model has %d bytes; it may have %d", len(p.Request.Config.Model), maxModelLength)
	}
	p.Adapter = s.Agents[0]
	if name := p.Request.Config.Agent; name != "" {
		i := slices.IndexFunc(s.Agents, func(a agent.Adapter) bool { return a.Name == name })
		if i < 0 {
			return unknownValue("config.agent", name, s.AgentNames())
		}
		p.Adapter = s.Agents[i]
	}
	if _, own := p.Adapter.Program.(agent.Command); !own && p.Request.Config.Model == "" {
		p.Request.Config.Model, p.Input.Config.Model = s.Model, s.Model
	}
	return p.Adapter.Check(p.Input)
}

// AgentNames are the values that config.agent may have.
func (s *Service) AgentNames() []string {
	var names []string
	for _, a := range s.Agents {
		names = append(names, a.Name)
	}
	return names
}
