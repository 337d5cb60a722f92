package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestLayoutIsDocumented requires a row in docs/architecture.md for every package, and
// for every folder at the top that has none.
func TestLayoutIsDocumented(t *testing.T) {
	want := map[string]bool{}
	for dir := range packages(t) {
		// These are told as one.
		if top, _, _ := strings.Cut(dir, "/"); top == "compose" || top == "bench" || top == "tools" {
			dir = top
		}
		want[dir] = true
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	ignored := strings.Fields(read(t, ".gitignore"))
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || name == ".git" || name == "internal" || name == "cmd" || slices.Contains(ignored, name+"/") || slices.Contains(ignored, "/"+name+"/") {
			continue
		}
		want[name] = want[name] || !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(dir string) bool { return strings.HasPrefix(dir, name+"/") })
	}
	rows := table(t, section(t, read(t, "docs/architecture.md"), "Packages"))
	for name, needed := range want {
		if _, ok := rows[name]; needed && !ok {
			t.Errorf("docs/architecture.md: %s has no row", name)
		}
	}
	for name := range rows {
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			t.Errorf("docs/architecture.md has a row for %s, which is no folder", name)
		}
	}
}

// saidBy returns the level of each message that the code of the daemons logs.
func saidBy(t *testing.T) map[string]string {
	t.Helper()
	said := map[string]string{}
	for _, path := range files(t, ".go") {
		top, _, _ := strings.Cut(path, "/")
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "dockertest") || !slices.Contains([]string{"gate", "sniproxy", "dnsgate", "executor", "githubauth", "cmd"}, top) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if level, msg := logged(call); msg != "" {
					said[msg] = level
				}
			}
			return true
		})
	}
	return said
}

var logCall = regexp.MustCompile(`^([Ii]nfo|[Ww]arn|[Ee]rror)(Context)?$|^LogAttrs$`)

// logged returns level and message of a call that logs, else none.
func logged(call *ast.CallExpr) (level, msg string) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	of, _ := f.X.(*ast.Ident)
	m := logCall.FindStringSubmatch(f.Sel.Name)
	if m == nil || of != nil && of.Name == "http" {
		return "", ""
	}
	for _, arg := range call.Args {
		if text, ok := arg.(*ast.BasicLit); ok && text.Kind == token.STRING {
			msg, _ = strconv.Unquote(text.Value)
			return strings.ToUpper(m[1]), msg
		}
	}
	return "", ""
}

// TestLogMessagesAreDocumented wants that each message of docs/operating.md is one
// that the code logs, and that none of level INFO or ERROR is missing there.
func TestLogMessagesAreDocumented(t *testing.T) {
	said, told := saidBy(t), map[string]bool{}
	for line := range strings.Lines(section(t, read(t, "docs/operating.md"), "Logs")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !slices.Contains([]string{"gate", "executor", "both"}, strings.TrimSpace(cells[1])) || strings.Contains(cells[2], "any other") {
			continue
		}
		for _, m := range inCode.FindAllStringSubmatch(cells[2], -1) {
			told[m[1]] = true
			if _, ok := said[m[1]]; !ok {
				t.Errorf("docs/operating.md: nothing logs %q", m[1])
			}
		}
	}
	for msg, level := range said {
		if (level == "INFO" || level == "ERROR") && !told[msg] {
			t.Errorf("docs/operating.md has no row for %q of level %s", msg, level)
		}
	}
	if len(told) < 30 {
		t.Errorf("only %d messages were found", len(told))
	}
}

// TestTroublesAreReal wants that the messages which docs/operating.md explains are
// in the code, as far as they are longer than a few words.
func TestTroublesAreReal(t *testing.T) {
	var code strings.Builder
	for _, path := range files(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			code.WriteString(read(t, path))
		}
	}
	found := 0
	for message := range table(t, section(t, read(t, "docs/operating.md"), "Troubleshooting")) {
		for part := range strings.SplitSeq(message, "...") {
			if part = strings.Trim(part, " ,:"); len(part) < 16 || strings.HasPrefix(part, "allowlist.yaml:") {
				continue
			}
			found++
			if !strings.Contains(code.String(), strings.Replace(part, "/28", "/%d", 1)) {
				t.Errorf("docs/operating.md: no code says %q", part)
			}
		}
	}
	if found < 10 {
		t.Errorf("only %d messages were found", found)
	}
}

// TestStagesAreDocumented holds docs/api.md and docs/architecture.md against the
// stages that a run reports.
func TestStagesAreDocumented(t *testing.T) {
	reported := regexp.MustCompile(`(?:\.stage\(|Stage: *)"([a-z]+)"`)
	var stages []string
	for _, path := range files(t, ".go") {
		if dir := filepath.Dir(path); strings.HasSuffix(path, "_test.go") || dir != "executor/dispatch" && dir != "executor/task" {
			continue
		}
		for _, m := range reported.FindAllStringSubmatch(read(t, path), -1) {
			stages = append(stages, m[1])
		}
	}
	row := table(t, section(t, read(t, "docs/api.md"), "Events"))["stage"]
	told := map[string][]string{}
	for _, m := range inCode.FindAllStringSubmatch(strings.ReplaceAll(row[2], "`prePopulateBranch`", ""), -1) {
		told[m[1]] = nil
	}
	same(t, "docs/api.md, stages", told, stages)

	life := map[string][]string{}
	for _, m := range regexp.MustCompile("[Ss]tage `([a-z]+)`").FindAllStringSubmatch(section(t, read(t, "docs/architecture.md"), "The life of a run"), -1) {
		life[m[1]] = nil
	}
	same(t, "docs/architecture.md, stages", life, stages)
}

// TestFramesAreDocumented holds docs/architecture.md against the frames of the wire,
// with their direction.
func TestFramesAreDocumented(t *testing.T) {
	frame := regexp.MustCompile(`(?m)^\t(?://.*\n\t)*?(?:// )?Frame([A-Z][a-z]+)[ ,].*`)
	there, back := map[string][]string{}, map[string][]string{}
	text := section(t, read(t, "docs/architecture.md"), "The wire")
	_, text, ok := strings.Cut(text, "To the sandbox:")
	toSandbox, toExecutor, both := strings.Cut(text, "To the\nexecutor:")
	if !ok || !both {
		t.Fatal("docs/architecture.md does not say which frames go where")
	}
	toExecutor, _, _ = strings.Cut(toExecutor, "[entrypoint/wire/wire.go]")
	for _, m := range inCode.FindAllStringSubmatch(toSandbox, -1) {
		there[m[1]] = nil
	}
	for _, m := range inCode.FindAllStringSubmatch(toExecutor, -1) {
		back[m[1]] = nil
	}
	var down, up []string
	for _, m := range frame.FindAllStringSubmatch(read(t, "entrypoint/wire/wire.go"), -1) {
		switch name := strings.ToLower(m[1]); {
		case strings.Contains(m[0], "to the sandbox:"):
			down = append(down, name)
		case strings.Contains(m[0], "to the executor"):
			up = append(up, name)
		}
	}
	if len(down) < 4 || len(up) < 8 {
		t.Fatalf("only the frames %v and %v were found", down, up)
	}
	same(t, "docs/architecture.md, frames to the sandbox", there, down)
	same(t, "docs/architecture.md, frames to the executor", back, up)
}

// TestStateIsDocumented wants a row for every directory and file that the executor
// has in its state directory.
func TestStateIsDocumented(t *testing.T) {
	rows := map[string]bool{}
	for name := range table(t, section(t, read(t, "docs/operating.md"), "Where state lies")) {
		first, _, _ := strings.Cut(name, "/")
		rows[first] = true
	}
	named := regexp.MustCompile(`(?m)^(?:const)?\s+[a-z]+(?:Dir|File) += "([a-z]+)"`)
	found := 0
	for _, m := range named.FindAllStringSubmatch(read(t, "executor/statedir/statedir.go"), -1) {
		found++
		if !rows[m[1]] {
			t.Errorf("docs/operating.md: %s of the state directory has no row", m[1])
		}
	}
	if found < 8 {
		t.Errorf("only %d names were found", found)
	}
}

// TestImagesAreDocumented holds docs/operating.md against the images that
// scripts/images builds, each from a folder of compose/images.
func TestImagesAreDocumented(t *testing.T) {
	var built []string
	for _, m := range regexp.MustCompile(`(?m)^ *build ([a-z-]+)`).FindAllStringSubmatch(read(t, "scripts/images"), -1) {
		built = append(built, m[1])
	}
	dirs, err := fs.Glob(os.DirFS("."), "compose/images/*")
	if err != nil || len(dirs) < 4 {
		t.Fatalf("only the images %v were found, %v", dirs, err)
	}
	folders := map[string][]string{}
	for _, dir := range dirs {
		folders[path.Base(dir)] = nil
	}
	same(t, "compose/images", folders, built)
	told := map[string][]string{}
	row := table(t, section(t, read(t, "docs/operating.md"), "Settings of the stack"))["SALLYPORT_TAG"]
	for _, m := range regexp.MustCompile("`(?:sallyport/)?([a-z-]+)`").FindAllStringSubmatch(row[2], -1) {
		told[m[1]] = nil
	}
	same(t, "docs/operating.md, images", told, built)
}
