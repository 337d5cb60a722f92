package allowlist

import (
	"github.com/goccy/go-yaml/ast"

	"sallyport/firewall/budget"
)

// A BudgetLine is one line of "budgets:".
type BudgetLine struct {
	Kind  budget.Kind
	Value int64 // 0 for none
	At    Pos
}

// readBudgets reads the mapping under "budgets:".
func (l *loader) readBudgets(n ast.Node, field string) []BudgetLine {
	var words []string
	for _, k := range budget.Kinds() {
		words = append(words, k.String())
	}
	fields := l.Mapping(n, field, words...)
	var values []BudgetLine
	for _, k := range budget.Kinds() {
		n, ok := fields[k.String()]
		if !ok {
			continue
		}
		want := "a whole number"
		if k.IsSize() {
			want = "a size with its unit, such as 100MB or 1GiB"
		}
		f := field + "." + k.String()
		s, p, ok := l.Scalar(n, f, want)
		switch value, isValue := k.Parse(s); {
		case !ok:
		case s == budget.None:
			values = append(values, BudgetLine{k, 0, p})
		case !isValue:
			l.Fault(p, f, "%s is not %s; none is no limit", quote(s), want)
		case value == 0:
			l.Fault(p, f, "%s allows nothing: none is no limit", quote(s))
		case value > k.Max():
			l.Fault(p, f, "%s is more than %s, the most there is; none is no limit", quote(s), k.Format(k.Max()))
		default:
			values = append(values, BudgetLine{k, value, p})
		}
	}
	return values
}
