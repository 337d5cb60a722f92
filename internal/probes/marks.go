package probes

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A Test is a test function that makes probes.
type Test struct {
	File   string // from the repository's root, with slashes
	Name   string // of the function
	Oracle string // where it looks, in the words of its doc comment
	Marks  []Mark // as they come in the file
}

// A Mark says that a test, or a row of it, makes a probe.
type Mark struct {
	Probe string
	Row   string // "" if it is the whole test
}

// Package returns the directory of t's package.
func (t Test) Package() string { return path.Dir(t.File) }

const (
	probeWord  = "// probe:"
	oracleWord = "// oracle:"
)

// Find returns the marked tests of all packages below the root of tree, by
// file and place. It is an error if a mark belongs to no test.
func Find(tree fs.FS) ([]Test, error) {
	var found []Test
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules" || base == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		tests, err := findIn(name, src)
		found = append(found, tests...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the marks of tests: %w", err)
	}
	return found, nil
}

// findIn returns the marked tests of one file.
func findIn(name string, src []byte) ([]Test, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	line := func(p token.Pos) int { return fset.Position(p).Line }

	var tests []Test
	used := map[*ast.Comment]bool{}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		t := Test{File: name, Name: fn.Name.Name, Oracle: oracle(fn.Doc)}
		for _, group := range f.Comments {
			if group != fn.Doc && (group.Pos() < fn.Pos() || group.End() > fn.End()) {
				continue
			}
			for _, c := range group.List {
				ids, ok := strings.CutPrefix(c.Text, probeWord)
				if !ok {
					continue
				}
				used[c] = true
				rows := []string{""}
				if group != fn.Doc {
					if rows = rowsAt(fn.Body, line, line(c.Pos())); rows == nil {
						return nil, fmt.Errorf("%s:%d: the mark stands beside no row that begins with its name", name, line(c.Pos()))
					}
				}
				for id := range strings.SplitSeq(ids, ",") {
					for _, row := range rows {
						t.Marks = append(t.Marks, Mark{strings.TrimSpace(id), row})
					}
				}
			}
		}
		if t.Marks != nil {
			tests = append(tests, t)
		}
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, probeWord) && !used[c] {
				return nil, fmt.Errorf("%s:%d: the mark belongs to no test", name, line(c.Pos()))
			}
		}
	}
	return tests, nil
}

// oracle returns what a doc comment says from its oracle's word to its end, but for
// a full stop.
func oracle(doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	i := slices.IndexFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, oracleWord) })
	if i < 0 {
		return ""
	}
	var words []string
	for _, c := range doc.List[i:] {
		words = append(words, strings.Fields(strings.TrimPrefix(c.Text, "//"))...)
	}
	return strings.TrimSuffix(strings.Join(words[1:], " "), ".")
}

// rowsAt returns the names of what a mark stands beside: of the table's row or
// subtest that begins on its line or, if there is none, of the subtest on the line
// below or the rows from there to the next comment or empty line.
func rowsAt(body *ast.BlockStmt, line func(token.Pos) int, mark int) []string {
	if names := beginning(body, line, mark, false); names != nil {
		return names
	}
	return beginning(body, line, mark+1, true)
}

// beginning returns the name of the outermost row or subtest that begins on a
// line and, if wanted, those of the rows that follow it line by line.
func beginning(body *ast.BlockStmt, line func(token.Pos) int, at int, following bool) []string {
	var names []string
	ast.Inspect(body, func(n ast.Node) bool {
		if names != nil || n == nil || line(n.Pos()) > at || line(n.End()) < at {
			return false
		}
		switch n := n.(type) {
		case *ast.CallExpr:
			if name := firstString(n); line(n.Pos()) == at && name != "" {
				names = []string{name}
			}
		case *ast.CompositeLit:
			next := at
			for _, row := range n.Elts {
				if line(row.Pos()) == next && (names == nil || following) {
					if name := firstString(row); name != "" {
						names = append(names, name)
						next = line(row.End()) + 1
					}
				}
			}
		}
		return names == nil
	})
	return names
}

// firstString returns the first string literal below n.
func firstString(n ast.Node) string {
	var first string
	ast.Inspect(n, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && first == "" && lit.Kind == token.STRING {
			first, _ = strconv.Unquote(lit.Value)
		}
		return first == ""
	})
	return first
}
