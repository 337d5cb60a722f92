package probe

import "errors"

// A finding is what a kind's function reports.
type finding struct {
	reached bool
	detail  string
	self    *Self
}

// refused is the finding where an operation failed.
func refused(err error) finding { return finding{detail: err.Error()} }

// variant is one of the ways that a probe tries.
type variant struct {
	name string
	do   func() finding
}

// every tries all variants, each with its share of the time; one that reached is
// enough.
func every(variants []variant) finding {
	if len(variants) == 0 {
		return refused(errors.New("nothing to try: no such device or address"))
	}
	var sum finding
	for _, a := range variants {
		o := a.do()
		sum.reached = sum.reached || o.reached
		if sum.detail != "" {
			sum.detail += "; "
		}
		sum.detail += a.name + ": " + o.detail
	}
	return sum
}
