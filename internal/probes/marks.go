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
				var row string
				if group != fn.Doc {
					if row = rowAt(fn.Body, line, line(c.Pos())); row == "" {
						return nil, fmt.Errorf("%s:%d: the mark stands beside no row that begins with its name", name, line(c.Pos()))
					}
				}
				for id := range strings.SplitSeq(ids, ",") {
					t.Marks = append(t.Marks, Mark{strings.TrimSpace(id), row})
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

// oracle returns what a doc comment says from its oracle's word to its end.
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
	return strings.Join(words[1:], " ")
}

// rowAt returns the name of the table's row or of the subtest that begins on
// the mark's line or, if there is none, on the line below: its first string.
func rowAt(body *ast.BlockStmt, line func(token.Pos) int, mark int) string {
	for _, at := range []int{mark, mark + 1} {
		var row ast.Node
		ast.Inspect(body, func(n ast.Node) bool {
			if row != nil || n == nil || line(n.Pos()) > at || line(n.End()) < at {
				return false
			}
			switch n.(type) {
			case *ast.CompositeLit, *ast.KeyValueExpr, *ast.CallExpr:
				if line(n.Pos()) == at && firstString(n) != "" {
					row = n
				}
			}
			return row == nil
		})
		if row != nil {
			return firstString(row)
		}
	}
	return ""
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
