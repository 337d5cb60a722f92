package firewall

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml/ast"
)

// The forms of a budget. The library that multiplies is lenient: it would take
// 100 for bytes and, asked for 1000s, 1GiB for 1GB.
var (
	sizeForm  = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,3})?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB|PB|PiB)$`)
	countForm = regexp.MustCompile(`^[0-9]{1,15}$`)
)

// readBudgets reads the mapping under "budgets:".
func (l *loader) readBudgets(n ast.Node, field string) []budgetValue {
	words := make([]string, len(budgetKeys))
	for i, k := range budgetKeys {
		words[i] = k.word
	}
	fields := l.Mapping(n, field, words...)
	var values []budgetValue
	for i, k := range budgetKeys {
		n, ok := fields[k.word]
		if !ok {
			continue
		}
		want, parse := "a whole number", parseCount
		if k.size {
			want, parse = "a size with its unit, such as 100MB or 1GiB", parseSize
		}
		s, p, ok := l.Scalar(n, field+"."+k.word, want)
		switch value, isValue := parse(s); {
		case !ok:
		case s == wordNone:
			values = append(values, budgetValue{i, 0, p})
		case !isValue:
			l.Fault(p, field+"."+k.word, "%s is not %s; none is no limit", quote(s), want)
		case value == 0:
			l.Fault(p, field+"."+k.word, "%s allows nothing: none is no limit", quote(s))
		case value > k.most:
			l.Fault(p, field+"."+k.word, "%s is more than %s, the most there is; none is no limit", quote(s), showBudget(k.most, k.size))
		default:
			values = append(values, budgetValue{i, value, p})
		}
	}
	return values
}

func parseCount(s string) (int64, bool) {
	if !countForm.MatchString(s) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// parseSize reads a size in bytes: 1MB is 1000 kB, 1MiB is 1024 KiB.
func parseSize(s string) (int64, bool) {
	if !sizeForm.MatchString(s) {
		return 0, false
	}
	multiply := units.FromHumanSize
	if strings.Contains(s, "i") {
		multiply = units.RAMInBytes
	}
	n, err := multiply(s)
	return n, err == nil
}
