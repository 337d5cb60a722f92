package boundary

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sallyport/entrypoint/probe"
	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
)

// An observation is all that was seen in one check.
type observation struct {
	trials                         *trials
	fromHere, fromBeside, fromHost map[string]probe.Result
	self                           *probe.Self
	hostHits, cellHits             []probe.CanaryHit
	hereReceipt, thereReceipt      account.Receipt
	herePrefix                     netip.Prefix
	host                           probe.Tables
}

// tooSmall says which of the host's tables do not suffice for what may be taken of
// them. What is not known suffices.
func tooSmall(host, need probe.Tables) []string {
	var out []string
	if host.TCPBytes > 0 && host.TCPBytes < need.TCPBytes {
		out = append(out, fmt.Sprintf("the host's kernel slows all TCP connections down once their buffers take %d MiB, and the runs may "+
			"fill %d MiB: raise net.ipv4.tcp_mem on it, or lower SALLYPORT_MAX_RUNS or SALLYPORT_MEMORY", host.TCPBytes>>20, need.TCPBytes>>20))
	}
	if host.Connections > 0 && host.Connections < need.Connections {
		out = append(out, fmt.Sprintf("the host's kernel can track %d connections, and the runs may fill %d entries: "+
			"raise net.netfilter.nf_conntrack_max on it, or lower SALLYPORT_MAX_RUNS", host.Connections, need.Connections))
	}
	return out
}

// noSuchName requires the gate's answer that a name does not exist (NXDOMAIN).
func noSuchName(r probe.Result) string {
	if !r.Reached {
		return "the gate does not answer: " + r.Detail
	}
	if !strings.HasPrefix(r.Detail, "NameError") {
		return "the gate answers " + r.Detail
	}
	return ""
}

// forbidden requires the gate's own refusal of a request.
func forbidden(r probe.Result) string {
	if !r.Reached || !strings.Contains(r.Detail, " 403") {
		return "the gate answers " + r.Detail
	}
	return ""
}

// held requires that nothing was reached.
func held(r probe.Result) string {
	if r.Reached {
		return "got through: " + r.Detail
	}
	return ""
}

// judge makes the findings. An error means that a control failed.
func (o *observation) judge() ([]api.BoundaryFinding, error) {
	if err := o.controls(); err != nil {
		return nil, err
	}
	all := &findings{}
	all.add(api.BoundaryFinding{Name: "controls", Passed: true, Detail: fmt.Sprintf(
		"the canaries hear themselves (%d ways), the gate of the own cell answers", len(o.trials.onHost)+len(o.trials.beside))})
	for _, a := range o.trials.here {
		result := o.fromHere[a.probe.ID]
		if !a.control {
			all.judge(a, result, o.hit(a.probe.ID))
		}
	}
	all.add(o.strangers("host listener (anything else from the cell)", o.hostHits))
	all.add(o.strangers("other sandbox (anything else from the cell)", o.cellHits))
	all.list = slices.Concat(all.list, o.receipts(), judgeSelf(o.self))
	return all.list, nil
}

// controls says whether everything that had to be reached was: by the canary's
// word where one listens, else by the prober's.
func (o *observation) controls() error {
	for _, from := range []struct {
		where   string
		trials  []trial
		results map[string]probe.Result
		hits    []probe.CanaryHit
	}{
		{"in the cell", o.trials.here, o.fromHere, nil},
		{"by the canary in the other cell", o.trials.beside, o.fromBeside, o.cellHits},
		{"by the canary on the host", o.trials.onHost, o.fromHost, o.hostHits},
	} {
		for _, a := range from.trials {
			if !a.control {
				continue
			}
			where := fmt.Sprintf("control %s (%s %s)", from.where, a.probe.Kind, a.probe.Address)
			// Where a canary listens, its word is enough; see listener.probe.
			if from.hits != nil && a.probe.Payload != "" {
				if !reported(from.hits, a.probe.ID) {
					return fmt.Errorf("%s: the canary did not hear it (%s)", where, from.results[a.probe.ID].Detail)
				}
				continue
			}
			if wrong := a.verdict(from.results[a.probe.ID]); wrong != "" {
				return fmt.Errorf("%s: %s", where, wrong)
			}
		}
	}
	return nil
}

// hit says which canary heard a trial, or "".
func (o *observation) hit(id string) string {
	switch {
	case reported(o.hostHits, id):
		return "the canary on the host heard it"
	case reported(o.cellHits, id):
		return "the canary in the other cell heard it"
	}
	return ""
}

// strangers judges what reached a canary from the prober's cell and is no trial's
// payload: a connection that said nothing, half a payload.
func (o *observation) strangers(name string, hits []probe.CanaryHit) api.BoundaryFinding {
	known := func(id string) bool {
		return slices.ContainsFunc(o.trials.here, func(a trial) bool { return a.probe.ID == id })
	}
	for _, h := range hits {
		if known(h.Payload) {
			continue // judged with its trial
		}
		if o.herePrefix.Contains(h.From.Addr().Unmap()) || strings.Contains(h.Payload, o.trials.trialToken) {
			return api.BoundaryFinding{Name: name, Detail: fmt.Sprintf("%s from %s, %.64q", h.Proto, h.From, h.Payload)}
		}
	}
	return api.BoundaryFinding{Name: name, Passed: true, Detail: "nothing was heard"}
}

// receipts judges what the gate has on record: everything that was asked of it in
// the own cell, refused, and nothing of it in the other cell.
func (o *observation) receipts() []api.BoundaryFinding {
	own := api.BoundaryFinding{Name: "gate records what it refused", Passed: true}
	for _, name := range o.trials.names {
		if !slices.ContainsFunc(o.hereReceipt.Hosts, func(h account.ReceiptHost) bool {
			return h.Host == name && h.Verdict == firewall.Deny
		}) {
			own.Passed, own.Detail = false, fmt.Sprintf("no refusal of %s is on record", name)
		}
	}
	for _, h := range o.hereReceipt.Hosts {
		if h.Verdict != firewall.Deny {
			own.Passed, own.Detail = false, fmt.Sprintf("%s was allowed (%s)", h.Host, h.Reason)
		}
	}
	if own.Passed {
		own.Detail = fmt.Sprintf("%d refusals under policy %s", len(o.hereReceipt.Hosts), o.hereReceipt.Policy)
	}
	other := api.BoundaryFinding{Name: "gate heard nothing in another cell", Passed: true, Detail: "nothing is on record there"}
	for _, h := range o.thereReceipt.Hosts {
		if slices.Contains(o.trials.foreign, h.Host) || h.Reason == firewall.ReasonForeignClient {
			other.Passed, other.Detail = false, fmt.Sprintf("%s is on record there (%s)", h.Host, h.Reason)
		}
	}
	return []api.BoundaryFinding{own, other}
}

// findings joins the trials of one name into one finding, in order of appearance.
type findings struct {
	list    []api.BoundaryFinding
	tallies map[string]*tally
}

type tally struct {
	index, count int
	slowest      int64
}

func (f *findings) add(one api.BoundaryFinding) { f.list = append(f.list, one) }

// judge judges one trial.
func (f *findings) judge(a trial, result probe.Result, heard string) {
	verdict := a.verdict
	if verdict == nil {
		verdict = held
	}
	wrong := verdict(result)
	if heard != "" {
		wrong = heard
	}
	if f.tallies == nil {
		f.tallies = make(map[string]*tally)
	}
	t := f.tallies[a.finding]
	if t == nil {
		t = &tally{index: len(f.list)}
		f.tallies[a.finding] = t
		f.add(api.BoundaryFinding{Name: a.finding, Passed: true})
	}
	t.count++
	t.slowest = max(t.slowest, result.Millis)
	finding := &f.list[t.index]
	switch {
	case wrong != "":
		target := strings.TrimSpace(a.probe.Address + " " + a.probe.ServerName)
		if finding.Passed {
			finding.Detail = ""
		} else {
			finding.Detail += "; "
		}
		finding.Passed = false
		finding.Detail = clip(finding.Detail + strings.TrimSpace(target+" "+wrong))
	case finding.Passed:
		finding.Detail = clip(fmt.Sprintf("held (%d tried, %d ms at most): %s", t.count, t.slowest, result.Detail))
	}
}
