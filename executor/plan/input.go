package plan

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"sallyport/executor/agent"
	"sallyport/executor/api"
)

// SearchProviders are the search providers whose key is set, by the name that
// config.webSearchProvider has for them.
func (s *Service) SearchProviders() []string {
	names := []string{}
	for key, value := range s.SearchKeys {
		if value != "" {
			name, _, _ := strings.Cut(key, "_") // BRAVE_SEARCH_API_KEY: brave
			names = append(names, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	return names
}

func (s *Service) judgeInput(p *Plan) *api.Problem {
	context, problem := s.context(p.Request.Config)
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
		Keys:    s.keys(p.Request.Config),
		Context: context,
		ExtraCA: ca,
	}
	return nil
}

// keys are the keys that the run gets: those of search providers only if it may
// search.
func (s *Service) keys(c api.Config) map[string]string {
	keys := map[string]string{}
	maps.Copy(keys, s.Keys)
	if c.WebSearch {
		maps.Copy(keys, s.SearchKeys)
	}
	return keys
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

// Bounds of agentContextDir.
const (
	maxContextFiles   = 64
	maxContextEntries = 4096 // that are looked at
)

// context composes AGENTS.md: the files of agentContextDir in order of their
// names, then agentContext.
func (s *Service) context(c api.Config) (string, *api.Problem) {
	var parts []string
	if c.AgentContextDir != "" {
		const field = "config.agentContextDir"
		dir, problem := s.resolve(field, c.AgentContextDir)
		if problem == nil {
			problem = s.private(field, c.AgentContextDir, dir)
		}
		if problem != nil {
			return "", problem
		}
		var err error
		if parts, err = readContext(dir); err != nil {
			return "", unacceptable(field, field+" cannot be read: %v", err)
		}
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
func readContext(dir string) ([]string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxContextEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var parts []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".md") || !e.Type().IsRegular() {
			continue
		}
		if len(parts) == maxContextFiles {
			return nil, fmt.Errorf("it has more than %d .md files", maxContextFiles)
		}
		text, err := readRegular(root, e.Name())
		if err != nil {
			return nil, err
		}
		parts = append(parts, text)
	}
	return parts, nil
}

// readRegular reads a file that may have been exchanged since it was listed:
// for a link that is refused, or for a pipe that would block.
func readRegular(root *os.Root, name string) (string, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxContextLength+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxContextLength {
		return "", fmt.Errorf("%s has more than %d bytes", name, maxContextLength)
	}
	return string(bytes.ToValidUTF8(data, []byte("\uFFFD"))), nil
}
