package plan_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sallyport/executor/api"
	"sallyport/executor/caller"
	"sallyport/executor/plan"
)

// put makes files with the directories on their way.
func put(t *testing.T, files map[string]string) {
	t.Helper()
	for path, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

func judgeSkills(s *plan.Service, paths ...string) (*plan.Plan, *api.Problem) {
	return s.Judge(caller.Operator(), request(func(c *api.Config) { c.SkillPaths = paths }), policies)
}

// TestSkills reads skills from a directory that is one and from one with some, and takes
// nothing that lies elsewhere or has no file of its own.
//
// probe: F1
// oracle: the files that the agent would be given
func TestSkills(t *testing.T) {
	base := t.TempDir()
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	put(t, map[string]string{
		root + "/pdf/SKILL.md":         "pdf",
		root + "/pdf/scripts/run.sh":   "#!/bin/sh",
		root + "/pdf/.git/config":      "not this",
		root + "/team/docs/SKILL.md":   "docs",
		root + "/team/logs/SKILL.md":   "logs",
		root + "/team/plain/README.md": "not this",
		root + "/plain/README.md":      "no skill",
		outside + "/SKILL.md":          "SECRET",
		outside + "/key/id":            "SECRET",
	})
	if err := errors.Join(
		os.Chmod(root+"/pdf/scripts/run.sh", 0o755),
		os.Symlink(outside+"/SKILL.md", root+"/pdf/link.md"),
		os.Symlink(outside+"/key", root+"/pdf/key"),
		os.Symlink(outside, root+"/team/outside"),
		os.Symlink(root+"/pdf", root+"/linked"),
		unix.Mkfifo(root+"/pdf/fifo", 0o644),
	); err != nil {
		t.Fatal(err)
	}
	s := service(root)
	p, problem := judgeSkills(s, root+"/pdf", root+"/team")
	if problem != nil {
		t.Fatal(problem)
	}
	var got []string
	for _, skill := range p.Input.Skills {
		for _, f := range skill.Files {
			got = append(got, fmt.Sprintf("%s/%s %s %v", skill.Name, f.Path, f.Content, f.Executable))
		}
	}
	want := "pdf/SKILL.md pdf false, pdf/scripts/run.sh #!/bin/sh true, docs/SKILL.md docs false, logs/SKILL.md logs false"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("%s\nwant %s", text, want)
	}
	s.Private = []string{root + "/team/logs"}
	for path, why := range map[string]string{
		root + "/plain":  "no SKILL.md",
		root + "/linked": "a symbolic link leads to it",
		root + "/absent": "does not exist",
		outside:          "does not lie under a configured root",
		root + "/team":   "the executor's own",
		"pdf":            "absolute path",
	} {
		if _, problem := judgeSkills(s, path); problem == nil || problem.Details["field"] != "config.skillPaths" || !strings.Contains(problem.Detail, why) {
			t.Errorf("%s: %v, want %q", path, problem, why)
		}
	}
	if _, problem := judgeSkills(s, root+"/pdf", root+"/pdf"); problem == nil || !strings.Contains(problem.Detail, "two skills") {
		t.Errorf("twice the same: %v", problem)
	}
}

// TestSkillsAreBounded has skills that are as large as they may be, and a little larger.
func TestSkillsAreBounded(t *testing.T) {
	deep := strings.Repeat("d/", 7)
	for name, tt := range map[string]struct {
		within, beyond map[string]string
		why            string
	}{
		"bytes": {map[string]string{"large": strings.Repeat("x", 1<<20-1-len("SKILL.md")-len("large"))}, map[string]string{"m": ""}, "more than 1048576 bytes"},
		"depth": {map[string]string{deep + "file": ""}, map[string]string{deep + "d/file": ""}, "more than 8 deep"},
		"files": {numbered("", 511), map[string]string{"more": ""}, "more than 512 files"},
		"names": {numbered(".git", 4000), numbered("directory/", 100), "more than 4096 files and directories"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			at := func(files map[string]string) {
				all := map[string]string{root + "/skill/SKILL.md": "x"}
				for path, text := range files {
					all[root+"/skill/"+path] = text
				}
				put(t, all)
			}
			at(tt.within)
			if name == "names" { // entries that are looked at, and left out
				for path := range tt.within {
					if err := errors.Join(os.Remove(root+"/skill/"+path), os.Symlink("/", root+"/skill/"+path)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if _, problem := judgeSkills(service(root), root+"/skill"); problem != nil {
				t.Errorf("control: %v", problem)
			}
			at(tt.beyond)
			if _, problem := judgeSkills(service(root), root+"/skill"); problem == nil || !strings.Contains(problem.Detail, tt.why) {
				t.Errorf("%v, want %q", problem, tt.why)
			}
		})
	}
}

func numbered(prefix string, n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%s%d", prefix, i)] = ""
	}
	return files
}

// TestPhase says which model and effort a run gets.
func TestPhase(t *testing.T) {
	const small, large = "anthropic/claude-haiku-4-5", "anthropic/claude-opus-4-5"
	both := map[string]string{"default": small, "review": large}
	for _, tt := range []struct {
		name    string
		config  api.Config
		task    string
		model   string
		variant string
		field   string
	}{
		{"phase", api.Config{Models: both, Telemetry: &api.Telemetry{PhaseName: "review"}, Variants: map[string]string{"review": "high"}}, "", large, "high", ""},
		{"task of the workflow", api.Config{Models: both}, "review", large, "", ""},
		{"phase before task", api.Config{Models: both, Telemetry: &api.Telemetry{PhaseName: "fix"}}, "review", small, "", ""},
		{"default", api.Config{Models: both, Variants: map[string]string{"default": "low"}}, "", small, "low", ""},
		{"phase before model", api.Config{Model: small, Models: map[string]string{"review": large}}, "review", large, "", ""},
		{"model", api.Config{Model: small, Models: map[string]string{"review": large}}, "fix", small, "", ""},
		{"neither", api.Config{Models: map[string]string{"review": large}}, "fix", "", "", "config.model"},
		{"two defaults", api.Config{Model: large, Models: both}, "review", "", "", "config.models"},
		{"two efforts", api.Config{Model: large, Variant: "low", Variants: map[string]string{"default": "high"}}, "", "", "", "config.variants"},
		{"unknown effort", api.Config{Model: large, Variants: map[string]string{"default": "utmost"}}, "", "", "", "config.variant"},
		{"many", api.Config{Model: large, Models: numbered("", 65)}, "", "", "", "config.models"},
		{"name of a phase", api.Config{Model: large, Telemetry: &api.Telemetry{PhaseName: "a\nb"}}, "", "", "", "config.telemetry.phaseName"},
		{"name of a workflow", api.Config{Model: large, Telemetry: &api.Telemetry{WorkflowName: strings.Repeat("w", 257)}}, "", "", "", "config.telemetry.workflowName"},
	} {
		req := api.Request{Prompt: "p", Config: tt.config}
		if tt.task != "" {
			req.Opts.Workflow = &api.Workflow{Definition: "d", Instance: "i", Task: tt.task}
		}
		p, problem := service().Judge(caller.Operator(), req, policies)
		switch {
		case tt.field != "" && (problem == nil || problem.Details["field"] != tt.field):
			t.Errorf("%s: %v, want a problem with %s", tt.name, problem, tt.field)
		case tt.field == "" && (problem != nil || p.Input.Config.Model != tt.model || p.Input.Config.Variant != tt.variant):
			t.Errorf("%s: %v, %+v", tt.name, problem, p)
		}
	}
}
