package plan

import (
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"sallyport/executor/agent"
	"sallyport/executor/api"
	"sallyport/executor/tree"
)

// Bounds of skillPaths, all of them together. What they hold goes over the wire with the
// job, for some agents twice, beside a context and a worker, and a frame has 8 MiB.
const (
	maxSkillPaths   = 64
	maxSkillFiles   = 512
	maxSkillEntries = 4096    // that are looked at
	maxSkillBytes   = 1 << 20 // of files with their paths
	maxSkillDepth   = 8       // directories one in another
)

// skillFile makes a directory a skill; see https://agentskills.io/specification.
const skillFile = "SKILL.md"

// skills reads the caller's skills. Each path is a skill, or a directory of some.
func (s *Service) skills(p *Plan) ([]agent.Skill, *api.Problem) {
	const field = "config.skillPaths"
	paths := p.Request.Config.SkillPaths
	if len(paths) > maxSkillPaths {
		return nil, unacceptable(field, "%s has %d paths; it may have %d", field, len(paths), maxSkillPaths)
	}
	var r skillReader
	for _, given := range paths {
		at, problem := s.direct(field, given)
		if problem == nil {
			problem = s.private(field, given, at)
		}
		if problem != nil {
			return nil, problem
		}
		dir, problem := s.open(field, given, at)
		if problem != nil {
			return nil, problem
		}
		err := r.take(dir, path.Base(at))
		dir.Close()
		if err != nil {
			return nil, unacceptable(field, "%s: %.256q: %v", field, given, err)
		}
		p.SkillDirs = append(p.SkillDirs, at)
	}
	return r.skills, nil
}

// A skillReader reads skills within the bounds. Links and special files are left out, as
// are names that no agent could be given.
type skillReader struct {
	skills                []agent.Skill
	entries, files, bytes int
}

// take reads the skill that a directory is, or those in it.
func (r *skillReader) take(dir *tree.Dir, name string) error {
	names, err := r.names(dir)
	if err != nil {
		return err
	}
	if isSkill(dir) {
		return r.skill(dir, name, names)
	}
	before := len(r.skills)
	for _, name := range names {
		below, err := dir.OpenDir(name)
		if err != nil {
			continue // no directory
		}
		if isSkill(below) {
			err = r.below(below, name)
		}
		below.Close()
		if err != nil {
			return err
		}
	}
	if len(r.skills) == before {
		return fmt.Errorf("it has no %s, and no directory in it has one", skillFile)
	}
	return nil
}

func (r *skillReader) below(dir *tree.Dir, name string) error {
	names, err := r.names(dir)
	if err != nil {
		return err
	}
	return r.skill(dir, name, names)
}

func isSkill(dir *tree.Dir) bool {
	f, err := dir.OpenFile(skillFile)
	if err == nil {
		f.Close()
	}
	return err == nil
}

func (r *skillReader) skill(dir *tree.Dir, name string, names []string) error {
	if slices.ContainsFunc(r.skills, func(s agent.Skill) bool { return s.Name == name }) {
		return fmt.Errorf("there are two skills of the name %.64q", name)
	}
	s := agent.Skill{Name: name}
	if err := r.fill(&s, dir, names, "", 1); err != nil {
		return err
	}
	files := map[string]string{}
	for _, f := range s.Files {
		files[f.Path] = string(f.Content)
	}
	s.SHA256 = digestOf(files)
	r.skills = append(r.skills, s)
	return nil
}

// fill adds the files of a directory to a skill, and those below.
func (r *skillReader) fill(s *agent.Skill, dir *tree.Dir, names []string, at string, depth int) error {
	if depth > maxSkillDepth {
		return fmt.Errorf("its directories are nested more than %d deep", maxSkillDepth)
	}
	for _, name := range names {
		f, err := r.read(dir, path.Join(at, name))
		if errors.Is(err, tree.ErrIrregular) {
			err = r.descend(s, dir, path.Join(at, name), depth)
		} else if err == nil {
			s.Files = append(s.Files, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *skillReader) descend(s *agent.Skill, dir *tree.Dir, at string, depth int) error {
	below, err := dir.OpenDir(path.Base(at))
	if err != nil {
		return nil // a link, or something special
	}
	defer below.Close()
	names, err := r.names(below)
	if err != nil {
		return err
	}
	return r.fill(s, below, names, at, depth+1)
}

// names are those in a directory, in order.
func (r *skillReader) names(dir *tree.Dir) ([]string, error) {
	names, err := dir.Names(maxSkillEntries - r.entries)
	if err != nil {
		return nil, err
	}
	if r.entries += len(names); r.entries > maxSkillEntries {
		return nil, fmt.Errorf("there are more than %d files and directories in all", maxSkillEntries)
	}
	slices.Sort(names)
	return slices.DeleteFunc(names, func(n string) bool { return n == ".git" || strings.ContainsRune(n, '\\') || !short(n) }), nil
}

func (r *skillReader) read(dir *tree.Dir, at string) (agent.SkillFile, error) {
	f, err := dir.OpenFile(path.Base(at))
	if err != nil {
		return agent.SkillFile{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return agent.SkillFile{}, err
	}
	r.bytes += len(at)
	data, err := io.ReadAll(io.LimitReader(f, int64(max(0, maxSkillBytes-r.bytes))+1))
	if err != nil {
		return agent.SkillFile{}, err
	}
	if r.bytes += len(data); r.bytes > maxSkillBytes {
		return agent.SkillFile{}, fmt.Errorf("the skills have more than %d bytes in all", maxSkillBytes)
	}
	if r.files++; r.files > maxSkillFiles {
		return agent.SkillFile{}, fmt.Errorf("the skills have more than %d files in all", maxSkillFiles)
	}
	return agent.SkillFile{Path: at, Content: data, Executable: info.Mode()&0o111 != 0}, nil
}
