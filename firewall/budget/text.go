package budget

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/docker/go-units"
)

// None is the word for no limit. It lifts a budget that a policy would take over
// from the one it extends.
const None = "none"

// The forms of a budget. The library that multiplies is lenient: it would take
// 100 for bytes and, asked for 1000s, 1GiB for 1GB.
var (
	sizeForm  = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,3})?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB|PB|PiB)$`)
	countForm = regexp.MustCompile(`^[0-9]{1,15}$`)
)

// Parse reads a value of k as the file writes it: a whole number, or a size in bytes
// with its unit, where 1MB is 1000 kB and 1MiB is 1024 KiB. It judges neither 0 nor
// what is more than Max.
func (k Kind) Parse(s string) (n int64, ok bool) {
	if k.IsSize() {
		return parseSize(s)
	}
	return parseCount(s)
}

func parseCount(s string) (int64, bool) {
	if !countForm.MatchString(s) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

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

// formatSize is the shortest form that parseSize reads as n.
func formatSize(n int64) string {
	for _, s := range []string{units.HumanSize(float64(n)), units.BytesSize(float64(n))} {
		if back, ok := parseSize(s); ok && back == n {
			return s
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}
