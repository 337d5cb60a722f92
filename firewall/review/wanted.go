package review

import (
	"slices"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/account"
)

// A Wanted is a host that was refused to a run for the sake of its name.
type Wanted struct {
	Name    firewall.Name
	Ports   []uint16 // none where it was only looked up
	Reasons []firewall.Reason
}

// Risks are what the reasons of its refusals say against it.
func (w Wanted) Risks() (risks []string) {
	if slices.Contains(w.Reasons, firewall.ReasonDoH) {
		risks = append(risks, "a public DNS-over-HTTPS resolver")
	}
	if slices.Contains(w.Reasons, firewall.ReasonRemoved) {
		risks = append(risks, "the policy removes it on purpose")
	}
	return risks
}

// WantedOf are the refused hosts of a receipt that an entry could allow, and those of
// the floor. A refusal for another reason is nothing that an entry changes.
func WantedOf(r account.Receipt) []Wanted {
	var all []Wanted
	for _, h := range r.Hosts {
		if h.Verdict == firewall.Allow {
			continue
		}
		switch h.Reason {
		case firewall.ReasonNotListed, firewall.ReasonPortNotAllowed, firewall.ReasonRemoved, firewall.ReasonDoH, firewall.ReasonFloorName:
			name, err := firewall.ParseName(h.Host)
			if err != nil {
				continue
			}
			w := Wanted{Name: name, Reasons: []firewall.Reason{h.Reason}}
			if h.Port != 0 { // a look-up has none
				w.Ports = []uint16{h.Port}
			}
			all = MergeWanted(all, []Wanted{w})
		}
	}
	return all
}

// MergeWanted adds more to all, each name once, sorted by name.
func MergeWanted(all, more []Wanted) []Wanted {
	for _, w := range more {
		i := slices.IndexFunc(all, func(have Wanted) bool { return have.Name == w.Name })
		if i < 0 {
			all = append(all, w)
			continue
		}
		all[i].Reasons = append(all[i].Reasons, w.Reasons...)
		all[i].Ports = append(all[i].Ports, w.Ports...)
		slices.Sort(all[i].Ports)
		all[i].Ports = slices.Compact(all[i].Ports)
	}
	slices.SortFunc(all, func(a, b Wanted) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	return all
}

// An Unwanted is a host that was refused to a run, and for which no entry is the answer.
type Unwanted struct{ Host, Why string }

// UnwantedOf says of what else was refused why no host is added for it. Host is as
// the sandbox sent it.
func UnwantedOf(r account.Receipt) []Unwanted {
	var all []Unwanted
	for _, h := range r.Hosts {
		switch h.Reason {
		case firewall.ReasonBadName:
			all = append(all, Unwanted{h.Host, "it is no host name, and an entry names hosts only, never addresses"})
		case firewall.ReasonAddress:
			all = append(all, Unwanted{h.Host, "its address was refused; for a host of your own, give its entry the private range by hand"})
		}
	}
	return all
}
