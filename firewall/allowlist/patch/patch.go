// Package patch adds hosts to an allowlist.yaml as a person would: by the
// smallest insertion into its text, beside the host's siblings where there are
// any, with every comment and all formatting kept.
//
// Nothing that it returns opens more than was asked for. Each insertion is parsed
// again and compared with [review.Diff]; one that opens anything but the exact
// host, for anybody but the policy and those that extend it, is not made. The
// package writes no files.
//
//	p, err := patch.Allow(src, "allowlist.yaml", "strict", []patch.Host{{Name: name, Ports: []uint16{443}}})
//	os.Stdout.Write(p.Text)
package patch

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
	"sallyport/firewall/review"
)

// A Host is what a policy shall allow: one name, without its subdomains.
type Host struct {
	Name  firewall.Name
	Ports []uint16 // 443 where it has none
}

// A Patch is an allowlist with hosts added.
type Patch struct {
	// Text is the whole new file.
	Text []byte
	// Added are the hosts that it allows and that the old one did not.
	Added []Added
	// Left are those for which nothing was done.
	Left []Left
	// Changes are what the new file makes different, and all of it.
	Changes []review.PolicyDiff
}

// Added is one host in its place.
type Added struct {
	Host  Host
	Place string // "policy strict" or "group registries"
	Entry string // as the file has it
}

// Left is a host for which nothing was done.
type Left struct {
	Host Host
	Why  string
}

// Allow adds hosts to what a policy of the file src allows. The error is that of
// allowlist.Parse, or that there is no such policy.
func Allow(src []byte, filename, policy string, hosts []Host) (*Patch, error) {
	before, err := allowlist.Parse(bytes.NewReader(src), filename)
	if err != nil {
		return nil, err
	}
	if _, ok := before.Policy(policy); !ok {
		return nil, fmt.Errorf("%s has no policy %q; it has %s", filename, policy, strings.Join(before.Names(), ", "))
	}
	p := &Patch{Text: slices.Clone(src)}
	for _, h := range hosts {
		if len(h.Ports) == 0 {
			h.Ports = []uint16{firewall.DefaultPort}
		}
		p.allow(filename, policy, h)
	}
	after, err := allowlist.Parse(bytes.NewReader(p.Text), filename)
	if err != nil {
		return nil, fmt.Errorf("the patched file is not right: %w", err)
	}
	p.Changes = review.Diff(before.Policies, after.Policies)
	return p, nil
}

func (p *Patch) allow(filename, policy string, h Host) {
	left := func(why string) { p.Left = append(p.Left, Left{h, why}) }
	if why, never := review.Never(h.Name); never {
		left(why)
		return
	}
	before, err := allowlist.Parse(bytes.NewReader(p.Text), filename)
	if err != nil {
		left("could not be judged: " + err.Error())
		return
	}
	was, _ := before.Policy(policy)
	ports := slices.DeleteFunc(slices.Clone(h.Ports), func(port uint16) bool { return was.Decide(h.Name, port).Allowed() })
	if len(ports) == 0 {
		left("is allowed already")
		return
	}
	slices.Sort(ports)
	want := Host{h.Name, slices.Compact(ports)}
	if m, bound := boundEntry(was, want); bound {
		left(fmt.Sprintf("has an entry with a proxy or private ranges, and without the port: add port %s to %s on line %d by hand",
			strings.Trim(fmt.Sprint(want.Ports), "[]"), m.Rule, m.Line))
		return
	}
	entry, f := Entry(want), readFile(p.Text)
	for _, place := range f.places(policy, want) {
		text := place.insert(f, entry)
		after, err := allowlist.Parse(bytes.NewReader(text), filename)
		if err == nil && intended(before, after, policy, f.heirs(policy), want) {
			p.Text = text
			p.Added = append(p.Added, Added{want, place.name, entry})
			return
		}
	}
	if d := was.Decide(h.Name, want.Ports[0]); d.Reason == firewall.ReasonPortNotAllowed {
		left(fmt.Sprintf("has an entry without the port: add it to %s on line %d by hand", d.Rule, d.Line))
		return
	}
	left("has no place in the file where it would open nothing else: add " + entry + " by hand")
}

// boundEntry finds the entry that has h without one of its ports, where a second
// entry would not do the same: it would have neither its proxy nor its ranges.
func boundEntry(was *firewall.Policy, h Host) (firewall.Match, bool) {
	for _, port := range h.Ports {
		for _, m := range was.Explain(h.Name, port) {
			if m.Reason == firewall.ReasonPortNotAllowed && (m.Via != "" || len(m.Private) > 0) {
				return m, true
			}
		}
	}
	return firewall.Match{}, false
}

// Entry is the host as an item of a list in the file.
func Entry(h Host) string {
	if len(h.Ports) == 0 || slices.Equal(h.Ports, []uint16{firewall.DefaultPort}) {
		return h.Name.String()
	}
	return fmt.Sprintf("{host: %s, ports: %s}", h.Name, strings.ReplaceAll(fmt.Sprint(h.Ports), " ", ", "))
}

// intended reports whether the only difference is that policy, and maybe its
// heirs, allow h.
func intended(before, after *allowlist.File, policy string, heirs []string, h Host) bool {
	for _, c := range review.Diff(before.Policies, after.Policies) {
		mine := c.Policy == policy || slices.Contains(heirs, c.Policy)
		if !mine || c.Added || c.Removed || c.ECH != "" || len(c.Closes)+len(c.Budgets) > 0 {
			return false
		}
		for _, r := range c.Opens {
			if r.Host != h.Name.String() || !r.Public || r.SubdomainsOnly || r.Via != "" || len(r.Private) > 0 || !subset(r.Ports, h.Ports) {
				return false
			}
		}
	}
	is, _ := after.Policy(policy)
	return !slices.ContainsFunc(h.Ports, func(port uint16) bool { return !is.Decide(h.Name, port).Allowed() })
}

func subset(a, b []uint16) bool {
	return !slices.ContainsFunc(a, func(p uint16) bool { return !slices.Contains(b, p) })
}
