package plan

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/tree"
)

// SearchProviders are the search providers whose key is set, by the name that
// config.webSearchProvider has for them.
func (s *Service) SearchProviders() []string {
	names := []string{}
	for _, key := range agent.SearchKeys() {
		if s.Keys[key] {
			name, _, _ := strings.Cut(key, "_") // BRAVE_SEARCH_API_KEY: brave
			names = append(names, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	return names
}

func (s *Service) judgeInput(p *Plan) *api.Problem {
	context, problem := s.context(p)
	if problem != nil {
		return problem
	}
	skills, problem := s.skills(p)
	if problem != nil {
		return problem
	}
	ca, problem := s.extraCA()
	if problem != nil {
		return problem
	}
	p.Input = agent.Input{
		Prompt:  p.Request.Prompt,
		Config:  p.Request.Config,
		Keys:    s.Keys,
		Context: context,
		Skills:  skills,
		ExtraCA: ca,
	}
	return nil
}

// judgeSecrets says which secrets the run is given, and refuses one that would take the
// place of what the run has already.
func (s *Service) judgeSecrets(p *Plan) *api.Problem {
	if n := len(s.Secrets); n > maxSecrets {
		return unacceptable("opts.security.secrets", "the run names %d secrets; it may name %d", n, maxSecrets)
	}
	p.Input.Secrets = append(agent.KeySecrets(p.Input), s.Secrets...)
	in := p.Input
	if p.GitHub != nil { // its names; the values come with the token
		in.GitHub = &agent.GitHub{}
	}
	if x := agent.Clash(p.Adapter, in); x != nil {
		return unacceptable("opts.security.secrets", "the secret %s goes into the variable %s, which this run has already; the profiles may give it another one", x.Name, x.Variable)
	}
	return nil
}

// extraCA reads the operator's extra certificates. A fault in the file is the
// operator's, not the caller's.
func (s *Service) extraCA() ([]byte, *api.Problem) {
	if s.ExtraCA == "" {
		return nil, nil
	}
	data, err := os.ReadFile(s.ExtraCA)
	if err == nil {
		if block, _ := pem.Decode(data); block == nil || block.Type != "CERTIFICATE" {
			err = fmt.Errorf("%s holds no PEM certificate", s.ExtraCA)
		}
	}
	if err != nil {
		return nil, refuse(http.StatusInternalServerError, api.CodeStartFailed, "", fmt.Sprintf("the executor's extra CA file: %v", err))
	}
	return data, nil
}

// maxSecrets bounds what redacting those of one run takes of the executor's memory.
const maxSecrets = 16

// Bounds of agentContextDir.
const (
	maxContextFiles   = 64
	maxContextEntries = 4096 // that are looked at
)

// context composes AGENTS.md: the files of agentContextDir in order of their
// names, then agentContext.
func (s *Service) context(p *Plan) (string, *api.Problem) {
	c := p.Request.Config
	var parts []string
	if c.AgentContextDir != "" {
		const field = "config.agentContextDir"
		path, problem := s.direct(field, c.AgentContextDir)
		if problem == nil {
			problem = s.private(field, c.AgentContextDir, path)
		}
		if problem != nil {
			return "", problem
		}
		dir, problem := s.open(field, c.AgentContextDir, path)
		if problem != nil {
			return "", problem
		}
		defer dir.Close()
		var err error
		if parts, err = readContext(dir); err != nil {
			return "", unacceptable(field, field+" cannot be read: %v", err)
		}
		p.ContextDir = path
	}
	if strings.TrimSpace(c.AgentContext) != "" {
		parts = append(parts, c.AgentContext)
	}
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(strings.TrimRight(part, "\n") + "\n")
	}
	if b.Len() > maxContextLength {
		return "", unacceptable("config.agentContext", "the agent's context has %d bytes; it may have %d", b.Len(), maxContextLength)
	}
	return b.String(), nil
}

// readContext reads the regular *.md files of a directory. Links and anything
// else that is not regular are left out.
func readContext(dir *tree.Dir) ([]string, error) {
	names, err := dir.Names(maxContextEntries)
	if err != nil {
		return nil, err
	}
	if len(names) > maxContextEntries {
		return nil, fmt.Errorf("it has more than %d entries", maxContextEntries)
	}
	slices.Sort(names)
	var parts []string
	for _, name := range names {
		if !strings.HasSuffix(name, ".md") {
			continue
		}
		text, err := readText(dir, name)
		if errors.Is(err, tree.ErrIrregular) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if parts = append(parts, text); len(parts) > maxContextFiles {
			return nil, fmt.Errorf("it has more than %d .md files", maxContextFiles)
		}
	}
	return parts, nil
}

func readText(dir *tree.Dir, name string) (string, error) {
	f, err := dir.OpenFile(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxContextLength+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxContextLength {
		return "", fmt.Errorf("%s has more than %d bytes", name, maxContextLength)
	}
	return string(bytes.ToValidUTF8(data, []byte("\uFFFD"))), nil
}
