package docs_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMain runs the tests in the repository's root, from which they name files.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// documents are all our Markdown files.
func documents(t *testing.T) []string { return files(t, ".md") }

// files are the repository's files with an ending, without what was built.
func files(t *testing.T, endings ...string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(name, ".") || name == "bin" || name == "node_modules" || name == "testdata"):
			return filepath.SkipDir
		case !d.IsDir() && slices.Contains(endings, filepath.Ext(name)):
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var variable = regexp.MustCompile(`\bSALLYPORT_[A-Z_]*[A-Z]\b`)

// variables are all that code, scripts and Compose files name, the settings
// included.
func variables(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, path := range files(t, ".go", ".sh", ".yaml", "") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, name := range variable.FindAllString(read(t, path), -1) {
			known[name] = true
		}
	}
	for _, dir := range []string{"gate", "cmd/executor"} {
		for name := range settingsOf(t, dir) {
			known["SALLYPORT_"+name] = true
		}
	}
	return known
}

// parse parses the Go files of a package, but for its tests.
func parse(t *testing.T, dir string) []*ast.File {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".go" || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, e.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	return parsed
}

// settingsOf returns the names and defaults of the settings that a package reads.
func settingsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	settings := map[string]string{}
	for _, f := range parse(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			field, ok := n.(*ast.Field)
			if !ok || field.Tag == nil {
				return true
			}
			text, err := strconv.Unquote(field.Tag.Value)
			if err != nil {
				t.Fatal(err)
			}
			tag := reflect.StructTag(text)
			if name, ok := tag.Lookup("env"); ok {
				settings[name] = tag.Get("envDefault")
			}
			return true
		})
	}
	return settings
}

// named returns a package's string constants of a type: values by names.
func named(t *testing.T, dir, typ string) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, f := range parse(t, dir) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			name, isName := spec.Type.(*ast.Ident)
			value, isValue := spec.Values[0].(*ast.BasicLit)
			if isName && isValue && name.Name == typ {
				text, err := strconv.Unquote(value.Value)
				if err != nil {
					t.Fatal(err)
				}
				values[spec.Names[0].Name] = text
			}
			return true
		})
	}
	if len(values) < 5 {
		t.Fatalf("%s has only the constants %v of type %s", dir, values, typ)
	}
	return values
}

// constants returns the values of a package's string constants of a type.
func constants(t *testing.T, dir, typ string) []string {
	t.Helper()
	return slices.Collect(maps.Values(named(t, dir, typ)))
}

// used reports which of these constants other packages use, by their values.
func used(t *testing.T, dir, typ string) map[string]bool {
	t.Helper()
	var code strings.Builder
	for _, path := range files(t, ".go") {
		if filepath.Dir(path) != dir && !strings.HasSuffix(path, "_test.go") {
			code.WriteString(read(t, path))
		}
	}
	found := map[string]bool{}
	for name, value := range named(t, dir, typ) {
		found[value] = regexp.MustCompile(`\b` + filepath.Base(dir) + `\.` + name + `\b`).MatchString(code.String())
	}
	return found
}

// jsonNames are the names of a struct's fields in JSON.
func jsonNames(prefix string, typ reflect.Type) []string {
	var names []string
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, prefix+name)
	}
	return names
}

// section is the part of a document under a heading of the second level.
func section(t *testing.T, doc, title string) string {
	t.Helper()
	_, rest, ok := strings.Cut(doc, "\n## "+title+"\n")
	if !ok {
		t.Fatalf("there is no section %q", title)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	part, _, _ := strings.Cut(rest, "\n### ")
	return part
}

var inCode = regexp.MustCompile("`([^`]+)`")

// table returns the rows of a section's tables, by each word in code style of the
// first column.
func table(t *testing.T, section string) map[string][]string {
	t.Helper()
	rows := map[string][]string{}
	for line := range strings.Lines(section) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "|")
		if !ok {
			continue
		}
		var cells []string
		for cell := range strings.SplitSeq(strings.TrimSuffix(line, "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		for _, m := range inCode.FindAllStringSubmatch(cells[0], -1) {
			rows[m[1]] = cells
		}
	}
	if len(rows) < 3 {
		t.Fatalf("the section has only the rows %v", rows)
	}
	return rows
}

func asRows(names []string) map[string][]string {
	rows := map[string][]string{}
	for _, name := range names {
		rows[name] = nil
	}
	return rows
}

// same wants that a document has a row for each name and for nothing else.
func same(t *testing.T, where string, rows map[string][]string, names []string) {
	t.Helper()
	for _, name := range names {
		if _, ok := rows[name]; !ok {
			t.Errorf("%s: %s is missing", where, name)
		}
	}
	for name := range rows {
		if !slices.Contains(names, name) {
			t.Errorf("%s: there is no %s", where, name)
		}
	}
}

var fence = regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")

// blocks are the fenced blocks of a document, by what stands behind the fence.
func blocks(doc string) map[string][]string {
	found := map[string][]string{}
	for _, m := range fence.FindAllStringSubmatch(doc, -1) {
		found[m[1]] = append(found[m[1]], m[2])
	}
	return found
}

// only is the one block of its kind.
func only(t *testing.T, doc, kind string) string {
	t.Helper()
	found := blocks(doc)[kind]
	if len(found) != 1 {
		t.Fatalf("there are %d blocks of %q, want 1", len(found), kind)
	}
	return found[0]
}

func decode(t *testing.T, text string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Errorf("%v in the example\n%s", err, text)
	}
}
