package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
)

// tree reads all of a file as its callers read parts of it, and gives what it says
// in one line.
func tree(src []byte) (string, error) {
	r := &Reader{Rules: rules(), File: "f"}
	r.MaxBytes, r.MaxLevels = 1<<20, 8
	body := r.Document(bytes.NewReader(src))
	if body == nil {
		return "", r.Err()
	}
	text := r.tree(body)
	return text, r.Err()
}

func (r *Reader) tree(n ast.Node) string {
	var b strings.Builder
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		for _, p := range r.Pairs(n, "") {
			fmt.Fprintf(&b, "%q: %s, ", p.Key, r.tree(p.Value))
		}
		return "{" + b.String() + "}"
	case *ast.SequenceNode:
		for _, item := range r.List(n, "", "things") {
			b.WriteString(r.tree(item) + ", ")
		}
		return "[" + b.String() + "]"
	}
	s, _, _ := r.Scalar(n, "", "a thing")
	return fmt.Sprintf("%q", s)
}

// secondTree is the same by another parser.
func secondTree(src []byte) (string, error) {
	var doc yaml.Node
	lines := yaml.NewDecoder(bytes.NewReader(src))
	if err := lines.Decode(&doc); err != nil {
		return "", err
	}
	for {
		var more yaml.Node
		err := lines.Decode(&more)
		switch {
		case err == io.EOF:
			return otherTree(doc.Content[0]), nil
		case err != nil:
			return "", err
		case len(more.Content) > 0 && more.Content[0].Tag != "!!null":
			return "", errors.New("a second document")
		}
	}
}

func otherTree(n *yaml.Node) string {
	var b strings.Builder
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			fmt.Fprintf(&b, "%q: %s, ", n.Content[i].Value, otherTree(n.Content[i+1]))
		}
		return "{" + b.String() + "}"
	case yaml.SequenceNode:
		for _, item := range n.Content {
			b.WriteString(otherTree(item) + ", ")
		}
		return "[" + b.String() + "]"
	}
	return fmt.Sprintf("%q", n.Value)
}

// differs says how a file that is taken here reads otherwise elsewhere, "" if it
// does not.
func differs(src []byte) string {
	here, err := tree(src)
	if err != nil {
		return ""
	}
	there, err := secondTree(src)
	switch {
	case err != nil:
		return fmt.Sprintf("read as %s; another parser says %v", here, err)
	case here != there:
		return fmt.Sprintf("read as %s; another parser reads %s", here, there)
	}
	return ""
}

// TestOneReading requires that what looks like one thing and reads as another is refused,
// with its place, beside what differs from it in nothing else and is taken.
//
// probe: P1
// oracle: another YAML parser
func TestOneReading(t *testing.T) {
	const tab, colon = "a tab: write spaces", "a colon without a space behind it: write a space between a key's colon and its value"
	for _, test := range []struct{ bad, want, good string }{
		{"poli\tcies: x", "f:1:5: " + tab, "policies: x # a\ttab"},
		{"a:\n  - github.com\t.attacker.example\n", "f:2:15: " + tab, "a:\n  - github.com.attacker.example\n"},
		{"a:\n\tb: c\n", "f:2:1: " + tab, "a:\n  b: c\n#\t\n"},
		{"a: 'b\tc'", "f:1:6: " + tab, "a: 'b c' #\t'"},
		{"a: b#\tc", "f:1:6: " + tab, "a: b #\tc"},
		{"a: 'b\n  #\tc'", "f:2:4: " + tab, "a: 'b' #\t# c'"},
		{"a: b\tc # d", "f:1:5: " + tab, "a: b c # d\te"},
		{"{a:b}", "f:1:3: " + colon, "{a: b}"},
		{"x: {host:.a.example}", "f:1:9: " + colon, `x: {"host":.a.example}`},
		{"x: {remove:[x]}", "f:1:11: " + colon, "x: {'remove':[x]}"},
		{"x: [{é: ü, b:c}]", "f:1:13: " + colon, "x: [{é: ü, b:\n  c}]"},
		{"x: {a: b:c}", "", "x: {a: 'b:c'}"},
		{"x: {a: b} !", "f:1:11: YAML syntax: value is not allowed in this context", "x: {a: b}"},
		{"policies:\npolicies ", "f:2:1: stands too far to the left: indent it more than its key", "policies:\n policies "},
		{"a:\n- \n b", "", "a:\n- b"},
		{"a: \"\\x0X\"", "f:1:4: a code after a backslash has too few digits", `a: "\x0a\\x0X"`},
		{"{'a':'b': c}", "f:1:12: YAML syntax: value is not allowed in this context. map key-value is pre-defined", "{'a': 'b', c: d}"},
		{"...\na: b", "f:1:1: the document ends here before it began: remove the line", "a: b\n..."},
		{"a: [b,, c]", "f:1:7: nothing stands before this comma: remove it", "a: [b, c,]"},
		{"a: [b\n]c: d", "f:2:2: YAML syntax: value is not allowed in this context", "a: [b\n]\nc: d"},
		{"a: [b\n]# c\n]d: e", "", "a: [b\n] # c\nd: e"},
		{"a: {b?: c}", "f:1:5: \"b?\" reads otherwise elsewhere: put it between quotation marks", "a: {'b?': c}"},
		{"a: b\n  c", "f:1:4: a text of several lines: put it on one, between quotation marks", "a: b, it's (c)"},
		{"a: [- b]", "f:1:5: \"-\" has no place between brackets", "a: [b]"},
		{"<<<<<<< HEAD\na: b\n", "f:1:1: a merge conflict begins here: keep one side of it, and remove the lines that begin with <<<<<<<, ======= and >>>>>>>", "<<<<<<<a: b\n"},
	} {
		_, err := tree([]byte(test.bad))
		if how := differs([]byte(test.bad)); how != "" || test.want != "" && (err == nil || err.Error() != test.want) {
			t.Errorf("%q: %v, want %s; %s", test.bad, err, test.want, how)
		}
		if _, err := tree([]byte(test.good)); err != nil || differs([]byte(test.good)) != "" {
			t.Errorf("%q: %v, %s", test.good, err, differs([]byte(test.good)))
		}
	}
}

// FuzzDiffer requires that a file which is taken here is taken by another parser, too,
// and says the same there.
func FuzzDiffer(f *testing.F) {
	for _, text := range []string{
		"version: 1\npolicies: {strict: {allow: [a.example, b.example], ech: refuse}}\n",
		"version: 1\npolicies:\n  strict:\n    allow: [\n      a.example,\n      b.example # x\n    ]\n    budgets: {upload: 1GB}\n",
		"a: \"x # y\tz\" #c\td\nb: c\td # e\nf:\tg\n",
		"{\"a\":b, 'c' : d, e: {f: g}, ? h : i}\n", "- a\n- - b\n  - {c:d}\n", "a: b: c\n", "---\na: 'b\n\n  c'\n...\n", "a: \"b\\\n  c\\x41\"\n", "a: b\n  c\n", "a: {b: c} !\n",
	} {
		f.Add([]byte(text))
	}
	paths, _ := filepath.Glob("../../firewall/allowlist/testdata/faults/*.txtar")
	for _, path := range append(paths, "../../allowlist.yaml") {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		archive := txtar.Parse(data)
		f.Add(archive.Comment)
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if how := differs(src); how != "" {
			t.Error(how)
		}
	})
}
