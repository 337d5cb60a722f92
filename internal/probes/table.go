package probes

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// engine are the packages whose tests run real sandboxes on a real engine.
var engine = []string{"compose", "executor/backend/docker", "executor/boundary"}

// level says where a package's tests run.
func level(pkg string) string {
	switch {
	case slices.Contains(engine, pkg):
		return "real engine"
	case pkg == "cell":
		return "network namespaces"
	case pkg == "cmd/gate":
		return "the gate's process"
	}
	return "package"
}

// Write writes a table in Markdown for each group: its probes with the tests that make
// them; then where each test looks. Its links start from the repository's root.
func Write(w io.Writer, groups []Group, tests []Test) error {
	var b bytes.Buffer
	b.WriteString(`# What is tried, and which test shows what happens

From the marks of the tests and the catalogue in [internal/probes](internal/probes/probes.go).
A test that makes a probe has a positive control beside each refusal and, where the gate
decides, asserts the decision's record too. [The last table](#where-the-tests-look) says where each of them looks for
what got through; [docs/threat-model.md](docs/threat-model.md) says what the promise is.
`)
	for _, g := range groups {
		fmt.Fprintf(&b, "\n## %s. %s\n\n| | what is tried | what must happen | tests |\n|---|---|---|---|\n", g.Letter, g.Title)
		for _, p := range g.Probes {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.ID, cell(p.Tried), cell(p.Must), made(p, tests))
		}
	}
	b.WriteString("\n## Where the tests look\n\nThe tests of a level below \"real engine\" need no engine.\n\n" +
		"| test | runs at | probes | what shows it |\n|---|---|---|---|\n")
	for _, t := range tests {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", linkTo(t), level(t.Package()), strings.Join(madeBy(t, groups), ", "), cell(t.Oracle))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// madeBy lists the probes that t makes, in the catalogue's order.
func madeBy(t Test, groups []Group) (ids []string) {
	for _, g := range groups {
		for _, p := range g.Probes {
			if slices.ContainsFunc(t.Marks, func(m Mark) bool { return m.Probe == p.ID }) {
				ids = append(ids, p.ID)
			}
		}
	}
	return ids
}

// made lists the tests that make p.
func made(p Probe, tests []Test) string {
	var list []string
	for _, t := range tests {
		var rows []string
		whole := false
		for _, m := range t.Marks {
			switch {
			case m.Probe != p.ID:
			case m.Row == "":
				whole = true
			default:
				rows = append(rows, "`"+strings.ReplaceAll(m.Row, "|", `\|`)+"`")
			}
		}
		switch {
		case whole:
			list = append(list, linkTo(t))
		case rows != nil:
			list = append(list, linkTo(t)+" ("+strings.Join(rows, ", ")+")")
		}
	}
	if p.Residual != "" {
		anchor := strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(Residuals, ":", "")), " ", "-")
		list = append(list, "residual: ["+p.Residual+"](docs/threat-model.md#"+anchor+")")
	}
	return strings.Join(list, ", ")
}

// linkTo names a test and links to its file.
func linkTo(t Test) string {
	pkg := path.Base(t.Package())
	if pkg == "." {
		pkg = "sallyport"
	}
	return fmt.Sprintf("[%s.%s](%s)", pkg, t.Name, t.File)
}

var inCell = strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;", "*", `\*`, "_", `\_`)

// cell makes a text fit into a cell of a table.
func cell(s string) string { return inCell.Replace(s) }
