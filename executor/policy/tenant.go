package policy

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml/ast"

	"sallyport/internal/strictyaml"
)

// A Share is what a tenant has of the machine, beside the ceiling of what its runs may do.
type Share struct {
	// Roots are directories of the host under which its requests may name paths, as far
	// as the service's roots go; none are in those of another tenant.
	Roots []string
	// Weight is its part of the places where others want them too; 1 where the file says
	// nothing.
	Weight int
	Quotas
}

// Quotas bound what all runs of a tenant take together.
type Quotas struct {
	Running, Waiting int   // at once; [Unbounded] for no bound
	Stored           int64 // bytes of what is kept of its runs; [Unbounded] for no bound
	CostPerDay       Cost  // of models, in 24 hours; Unbounded for no bound
}

// Unbounded is a quota that bounds nothing.
const Unbounded = math.MaxInt

var unbounded = Quotas{Running: Unbounded, Waiting: Unbounded, Stored: Unbounded, CostPerDay: Unbounded}

// Share is what a tenant has. The operator has no quotas, and all roots of the service,
// which are not in the file. A tenant that the file does not have has nothing.
func (ps *Profiles) Share(tenant string) Share {
	switch {
	case tenant == Operator:
		return Share{Quotas: unbounded}
	case ps == nil:
		return Share{}
	}
	return ps.shares[tenant]
}

// Ceiling is the most that a tenant's runs may do, under whatever profile: its bounds and
// the service's. Each dimension has a value. A tenant that is not in the file may do
// nothing.
func (ps *Profiles) Ceiling(tenant string) Bounds {
	if ps == nil || tenant != Operator && ps.tenants[tenant] == nil {
		return nothing
	}
	met := top
	for _, c := range []*ceiling{ps.tenants[tenant], ps.service} {
		if c == nil { // the operator's
			continue
		}
		for d, v := range c.bounds {
			if v != nil {
				met[d] = met[d].Meet(v)
			}
		}
	}
	return met
}

// The words of a tenant, beside those of the dimensions.
const (
	wordRoots      = "roots"
	wordWeight     = "weight"
	wordQuotas     = "quotas"
	wordRunning    = "running"
	wordWaiting    = "waiting"
	wordStored     = "stored"
	wordCostPerDay = "costPerDay"
)

func (r *reader) tenant(kv strictyaml.Pair) (*ceiling, Share) {
	c := &ceiling{who: "the tenant " + kv.Key, field: wordTenants + "." + kv.Key, line: kv.At.Line}
	fields := r.bounds(c, kv.Value, wordDefault, wordRoots, wordWeight, wordQuotas)
	if d, ok := fields[wordDefault]; ok {
		c.byDefault = r.word(d, c.field+"."+wordDefault, nameForm, nameFormText)
	}
	if c.bounds[ProfileNames] == nil {
		r.Fault(kv.At, c.field, "has no profiles: name those that the tenant may ask for, or write \"profiles: all\"")
	}
	s := Share{Weight: 1, Quotas: unbounded}
	if n, ok := fields[wordRoots]; ok {
		s.Roots = r.roots(n, c.field+"."+wordRoots)
	}
	if n, ok := fields[wordWeight]; ok {
		field := c.field + "." + wordWeight
		if s.Weight = int(r.whole(n, field)); s.Weight > maxWeight {
			r.Fault(strictyaml.Start(n), field, "a weight is from 1 to %d", maxWeight)
		}
	}
	if n, ok := fields[wordQuotas]; ok {
		s.Quotas = r.quotas(n, c.field+"."+wordQuotas)
	}
	return c, s
}

// maxWeight is the greatest weight of a tenant.
const maxWeight = 100

// roots reads directories of a tenant, none of which is another's: r.rooted has those
// that were read before.
func (r *reader) roots(n ast.Node, field string) []string {
	set := r.set(n, field, "directories", directory)
	if set.all {
		r.Fault(strictyaml.Start(n), field, "a tenant has directories of its own: name them")
	}
	for _, root := range set.names {
		for _, other := range r.rooted {
			if under(root, other.root) || under(other.root, root) {
				r.Fault(strictyaml.Start(n), field, "%s overlaps %s, which %s has: no two tenants share a directory", quote(root), quote(other.root), other.field)
			}
		}
	}
	for _, root := range set.names {
		r.rooted = append(r.rooted, rooted{root, field})
	}
	return set.names
}

// A rooted directory is one of a tenant's.
type rooted struct{ root, field string }

func under(dir, root string) bool { return dir == root || strings.HasPrefix(dir, root+"/") }

func directory(s string) (string, error) {
	if !path.IsAbs(s) || path.Clean(s) != s || s == "/" {
		return "", fmt.Errorf("write the absolute path of a directory in its shortest form, such as /srv/acme")
	}
	return s, nil
}

func (r *reader) quotas(n ast.Node, field string) Quotas {
	q := unbounded
	fields := r.Mapping(n, field, wordRunning, wordWaiting, wordStored, wordCostPerDay)
	in := func(word string) string { return field + "." + word }
	if n, ok := fields[wordRunning]; ok {
		q.Running = int(r.whole(n, in(wordRunning)))
	}
	if n, ok := fields[wordWaiting]; ok {
		q.Waiting = r.waiting(n, in(wordWaiting))
	}
	if n, ok := fields[wordStored]; ok {
		q.Stored = r.size(n, in(wordStored))
	}
	if n, ok := fields[wordCostPerDay]; ok {
		q.CostPerDay = r.cost(n, in(wordCostPerDay))
	}
	return q
}

// waiting reads a number that may be 0: then nothing waits.
func (r *reader) waiting(n ast.Node, field string) int {
	s, p, ok := r.Scalar(n, field, "a whole number")
	v, err := strconv.ParseInt(s, 10, 32)
	if ok && (n.Type() != ast.IntegerType || err != nil || v < 0) {
		r.Fault(p, field, "%s is not a whole number of 0 or more", quote(s))
	}
	return int(v)
}

var sizeForm = regexp.MustCompile(`^[1-9][0-9]{0,5}(B|KiB|MiB|GiB|TiB)$`)

func (r *reader) size(n ast.Node, field string) int64 {
	s, p, ok := r.Scalar(n, field, "a size such as 10GiB")
	if !ok {
		return 0
	}
	v, err := units.RAMInBytes(s)
	if !sizeForm.MatchString(s) || err != nil {
		r.Fault(p, field, "%s is not a size such as 10GiB", quote(s))
	}
	return v
}

// canonical is for the digest.
func (s Share) canonical(field string) string {
	return fmt.Sprintf("%s roots=%q weight=%d quotas=%+v\n", field, slices.Sorted(slices.Values(s.Roots)), s.Weight, s.Quotas)
}
