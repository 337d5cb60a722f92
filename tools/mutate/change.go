package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// changedPackage is a package of which each change is there, and none is chosen.
type changedPackage struct {
	dir     string
	files   map[string][]byte // by path
	changes []made
}

// made is a change: where, and which.
type made struct{ at, what string }

// switchSource is the file that chooses among the changes of package %s, which has %d.
const switchSource = `package %s

import (
	"os"
	"strconv"
	"sync/atomic"
)

var (
	mutateReached = os.Getenv("MUTATE_REACHED")
	mutateChosen  = func() int {
		n, err := strconv.Atoi(os.Getenv("MUTATE"))
		if err != nil {
			return -1
		}
		return n
	}()
	mutateSeen [%d]atomic.Bool
)

// mutate says whether change n is the one to make.
func mutate(n int) bool {
	if mutateReached != "" && !mutateSeen[n].Swap(true) {
		if f, err := os.OpenFile(mutateReached, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666); err == nil {
			f.WriteString(strconv.Itoa(n) + "\n")
			f.Close()
		}
	}
	return n == mutateChosen
}
`

// change reads the package in folder and writes every change into its code.
func change(folder string) (*changedPackage, error) {
	dir, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps,
		Dir:  dir,
	}, ".")
	if err != nil {
		return nil, err
	}
	if len(loaded) != 1 || len(loaded[0].Errors) > 0 {
		return nil, fmt.Errorf("%s is no package that compiles: %v", folder, loaded)
	}
	p := loaded[0]
	result := &changedPackage{dir: dir, files: map[string][]byte{}}
	for _, file := range p.Syntax {
		path := p.Fset.File(file.FileStart).Name()
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		w := writer{pkg: p, file: file, text: text, into: result, name: filepath.Join(folder, filepath.Base(path))}
		result.files[path] = []byte(w.render(file.FileStart, file.FileEnd, file))
	}
	result.files[filepath.Join(dir, "mutate_switch.go")] = fmt.Appendf(nil, switchSource, p.Name, len(result.changes))
	return result, nil
}

// writer writes one file anew, with the changes in it.
type writer struct {
	pkg  *packages.Package
	file *ast.File
	text []byte
	into *changedPackage
	name string
}

// render gives the text between two positions, in which each outermost node below root
// that can be changed is written by rewrite.
func (w *writer) render(from, to token.Pos, root ast.Node) string {
	type piece struct {
		node ast.Node
		text string
	}
	var pieces []piece
	ast.Inspect(root, func(n ast.Node) bool {
		if n == nil || n == root {
			return true
		}
		if text, ok := w.rewrite(n); ok {
			pieces = append(pieces, piece{n, text})
			return false
		}
		return true
	})
	slices.SortFunc(pieces, func(a, b piece) int { return int(a.node.Pos() - b.node.Pos()) })
	var out strings.Builder
	for _, p := range pieces {
		out.Write(w.source(from, p.node.Pos()))
		out.WriteString(p.text)
		from = p.node.End()
	}
	out.Write(w.source(from, to))
	return out.String()
}

func (w *writer) source(from, to token.Pos) []byte {
	f := w.pkg.Fset.File(w.file.FileStart)
	return w.text[f.Offset(from):f.Offset(to)]
}

// inner is render of a node as a whole, which is itself changed if it can be.
func (w *writer) inner(n ast.Node) string {
	if text, ok := w.rewrite(n); ok {
		return text
	}
	return w.render(n.Pos(), n.End(), n)
}

// add notes a change and gives its number.
func (w *writer) add(n ast.Node, what string) int {
	at := w.pkg.Fset.Position(n.Pos())
	text := strings.Join(strings.Fields(string(w.source(n.Pos(), n.End()))), " ")
	if len(text) > 100 {
		text = text[:100] + "..."
	}
	w.into.changes = append(w.into.changes, made{fmt.Sprintf("%s:%d:%d", w.name, at.Line, at.Column), what + ": " + text})
	return len(w.into.changes) - 1
}

var (
	boundary   = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	arithmetic = map[token.Token]token.Token{
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	}
)

// rewrite gives a node's text with its changes in it, if it can be changed.
func (w *writer) rewrite(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		return w.binary(n)
	case *ast.IfStmt:
		return w.condition(n)
	case *ast.ExprStmt:
		return w.call(n)
	}
	return "", false
}

func (w *writer) binary(e *ast.BinaryExpr) (string, bool) {
	kind, ok := w.kind(e)
	if !ok {
		return "", false
	}
	x, y := w.inner(e.X), w.inner(e.Y)
	plain := fmt.Sprintf("(%s) %s (%s)", x, e.Op, y)
	choice := func(op token.Token) string {
		n := w.add(e, fmt.Sprintf("%s for %s", op, e.Op))
		return fmt.Sprintf("func() %s { if mutate(%d) { return (%s) %s (%s) }; return %s }()", kind, n, x, op, y, plain)
	}
	switch e.Op {
	case token.LAND:
		return choice(token.LOR), true
	case token.LOR:
		return choice(token.LAND), true
	case token.EQL, token.NEQ:
		return fmt.Sprintf("((%s) != mutate(%d))", plain, w.add(e, "the opposite")), true
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		text := choice(boundary[e.Op])
		return fmt.Sprintf("(%s != mutate(%d))", text, w.add(e, "the opposite")), true
	}
	op, ok := arithmetic[e.Op]
	if !ok || kind == "bool" || kind == "string" {
		return "", false
	}
	return choice(op), true
}

// kind is the type of an expression, if it is one that a function can be written to
// return: bool, a number, or a number that the package or one of its imports names.
func (w *writer) kind(e ast.Expr) (string, bool) {
	tv := w.pkg.TypesInfo.Types[e]
	basic, ok := tv.Type.Underlying().(*types.Basic)
	if !ok || tv.Value != nil || basic.Info()&(types.IsInteger|types.IsFloat|types.IsBoolean) == 0 {
		return "", false
	}
	if basic.Kind() == types.UntypedBool {
		return "bool", true
	}
	if basic.Info()&types.IsUntyped != 0 {
		return "", false
	}
	switch t := types.Unalias(tv.Type).(type) {
	case *types.Basic:
		return t.Name(), true
	case *types.Named:
		return w.named(t.Obj())
	}
	return "", false
}

func (w *writer) named(name *types.TypeName) (string, bool) {
	if name.Pkg() == w.pkg.Types {
		return name.Name(), name.Parent() == w.pkg.Types.Scope()
	}
	for _, spec := range w.file.Imports {
		if spec.Name == nil && strings.Trim(spec.Path.Value, `"`) == name.Pkg().Path() {
			return name.Pkg().Name() + "." + name.Name(), true
		}
	}
	return "", false
}

// condition changes a condition that is no operator's result: a call, a variable.
func (w *writer) condition(s *ast.IfStmt) (string, bool) {
	cond := ast.Unparen(s.Cond)
	if b, ok := cond.(*ast.BinaryExpr); ok {
		if _, ok := w.kind(b); ok {
			return "", false
		}
	}
	if kind, ok := w.kind(cond); !ok || kind != "bool" {
		return "", false
	}
	n := w.add(s.Cond, "the opposite")
	var out strings.Builder
	out.WriteString("if ")
	if s.Init != nil {
		out.WriteString(w.inner(s.Init) + "; ")
	}
	fmt.Fprintf(&out, "(%s) != mutate(%d) %s", w.inner(s.Cond), n, w.inner(s.Body))
	if s.Else != nil {
		out.WriteString(" else " + w.inner(s.Else))
	}
	return out.String(), true
}

// call leaves a call out whose result nobody takes.
func (w *writer) call(s *ast.ExprStmt) (string, bool) {
	e, ok := s.X.(*ast.CallExpr)
	if !ok {
		return "", false // a receive, which would block
	}
	if w.clause(s) {
		return "", false // no place for an if
	}
	if id, ok := e.Fun.(*ast.Ident); ok && id.Name == "panic" {
		return "", false
	}
	n := w.add(s, "left out")
	return fmt.Sprintf("if !mutate(%d) { %s }", n, w.render(s.Pos(), s.End(), s)), true
}

// clause reports whether a statement stands before a condition: "if call(); x {".
func (w *writer) clause(s ast.Stmt) (found bool) {
	ast.Inspect(w.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			found = found || n.Init == s
		case *ast.SwitchStmt:
			found = found || n.Init == s
		case *ast.TypeSwitchStmt:
			found = found || n.Init == s
		case *ast.ForStmt:
			found = found || n.Init == s || n.Post == s
		}
		return !found
	})
	return found
}
