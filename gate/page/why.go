package page

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/allowlist"
)

// A Verdict is the answer to GET /why.
type Verdict struct {
	Host    string           `json:"host"`
	Port    uint16           `json:"port"`
	Verdict firewall.Verdict `json:"verdict"`
	Reason  firewall.Reason  `json:"reason"`
	Rule    string           `json:"rule,omitempty"` // the entry that decided
	Group   string           `json:"group,omitempty"`
	Line    int              `json:"line,omitempty"` // of the rule, in the operator's allowlist
	Detail  string           `json:"detail,omitempty"`
	Says    string           `json:"says"` // the reason in a sentence
	// Ask is what would allow it, for the operator to paste into the allowlist; it
	// is empty where nothing would, or nothing is needed.
	Ask string `json:"ask,omitempty"`
	// Refusals are those of this host in this run: an allowed name may have been
	// refused for what it led to.
	Refusals []refusal `json:"refusals"`
}

// servedPorts are the ports that the gate serves.
var servedPorts = []uint16{443, 80}

// why judges a host as the gate would, without resolving it.
func (p *Page) why(host, port string) (*Verdict, error) {
	if host == "" {
		return nil, errors.New("host is missing: /why?host=NAME&port=443")
	}
	v := &Verdict{Host: firewall.Escape(host, 253), Port: firewall.DefaultPort, Verdict: firewall.Deny, Refusals: []refusal{}}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return nil, errors.New("port is not a number from 1 to 65535")
		}
		v.Port = uint16(n)
	}
	name, err := firewall.ParseName(host)
	if err != nil {
		v.Reason, v.Detail = firewall.ReasonBadName, err.Error()
		v.Says = "Only host names can be reached: no address, no single label."
		return v, nil
	}
	v.Host, v.Refusals = name.String(), p.refusals(name.String())
	if name == Name {
		v.Verdict, v.Reason, v.Says = firewall.Allow, firewall.ReasonPolicyPage, "This page, which the gate itself serves on port 80."
		return v, nil
	}
	policy := p.Policy()
	d := policy.Decide(name, v.Port)
	v.Verdict, v.Reason, v.Rule, v.Group, v.Line, v.Detail = d.Verdict, d.Reason, d.Rule, d.Group, d.Line, d.Detail
	v.explain(p.PolicyName, policy, name)
	return v, nil
}

// explain says the reason in a sentence and finds what to ask for.
func (v *Verdict) explain(policyName string, policy *firewall.Policy, name firewall.Name) {
	item := v.Host
	switch {
	case policy == nil:
		v.Says = "The operator's allowlist no longer has the policy " + policyName + ": everything is denied."
		return
	case v.Verdict == firewall.Allow:
		v.Says = "The policy allows it. If it fails all the same, the refusals of this run say why; if there are none, it is not the gate."
		return
	case v.Reason == firewall.ReasonFloorName:
		v.Says = "A metadata or internal name: no entry can allow it."
		return
	case !slices.Contains(servedPorts, v.Port):
		v.Says = "The gate serves ports 443 and 80 only: no entry can open another one."
		return
	case v.Reason == firewall.ReasonRemoved:
		v.Says = "The policy takes this host away by its remove."
		v.Ask = fmt.Sprintf("# take %s out of the remove on line %d, which the policy %s has or inherits\n", v.Rule, v.Line, policyName)
		return
	case v.Reason == firewall.ReasonPortNotAllowed:
		v.Says = "An entry has this host, but not this port."
		v.Ask = askPort(policy, name, v)
		return
	case v.Reason == firewall.ReasonDoH:
		v.Says = "A public DNS-over-HTTPS resolver needs an entry of its own."
	default:
		v.Says = "No entry of the policy has this host."
	}
	if item == v.Host && v.Port != firewall.DefaultPort {
		item = fmt.Sprintf("{host: %s, ports: [%d]}", v.Host, v.Port)
	}
	patch := fmt.Sprintf("policies:\n  %s:\n    allow:\n      - %s\n", policyName, item)
	if _, err := allowlist.Parse(strings.NewReader("version: 1\n"+patch), "patch"); err != nil {
		v.Says += " An entry cannot have it as it is: " + faultOf(err)
		return
	}
	v.Ask = patch
}

// askPort says how the entry that decided gets the port that it lacks. One that is
// shared, or has more than ports, is not written out: what was left out would be lost.
func askPort(policy *firewall.Policy, name firewall.Name, v *Verdict) string {
	for _, m := range policy.Explain(name, v.Port) {
		if m.Rule != v.Rule || m.Line != v.Line {
			continue
		}
		if m.Group != "" || m.Via != "" || len(m.Private) > 0 {
			break
		}
		ports := append(slices.Clone(m.Ports), v.Port)
		slices.Sort(ports)
		return fmt.Sprintf("# in place of the entry %s on line %d\n- {host: %s, ports: [%s]}\n", v.Rule, v.Line, v.Rule, portText(slices.Compact(ports)))
	}
	return fmt.Sprintf("# add port %d to the entry %s on line %d, and leave the rest of it as it is\n", v.Port, v.Rule, v.Line)
}

// faultOf is the first fault that a patch would have.
func faultOf(err error) string {
	if faults, ok := errors.AsType[allowlist.FileErrors](err); ok && len(faults) > 0 {
		return faults[0].Problem
	}
	return err.Error()
}

func (v *Verdict) text(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s:%d: %s (%s)\n%s\n", v.Host, v.Port, v.Verdict, v.Reason, v.Says)
	if v.Rule != "" {
		fmt.Fprintf(b, "rule: %s, line %d of the allowlist", v.Rule, v.Line)
		if v.Group != "" {
			fmt.Fprintf(b, ", group %s", v.Group)
		}
		b.WriteByte('\n')
	}
	if v.Detail != "" {
		fmt.Fprintf(b, "detail: %s\n", v.Detail)
	}
	if v.Ask != "" {
		fmt.Fprintf(b, "\nThe operator can allow it in allowlist.yaml, if it is meant to be:\n\n%s", v.Ask)
	}
	if len(v.Refusals) > 0 {
		b.WriteString("\nRefused in this run:\n")
		refusalText(b, v.Refusals)
	}
}
