package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sallyport/executor/api"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist/patch"
)

// maxResult bounds a file that holds a result, in bytes.
const maxResult = 256 << 20

// result finds the result of a run: an identifier, or a file that holds it.
func (a *app) result(ctx context.Context, run string) (*api.Result, error) {
	if strings.HasSuffix(run, ".json") || strings.ContainsRune(run, filepath.Separator) {
		return readResult(run)
	}
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	execution, err := c.Get(ctx, run)
	if err != nil {
		return nil, err
	}
	if execution.Result == nil {
		return nil, fmt.Errorf("run %s is %s: its receipt comes when it has ended", run, execution.State)
	}
	return execution.Result, nil
}

// readResult reads a result, or the executor's answer about a run, from a file.
func readResult(path string) (*api.Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the result of a run: %w", err)
	}
	defer f.Close()
	var read struct {
		api.Result
		Answer *api.Result `json:"result"`
	}
	if err := json.NewDecoder(io.LimitReader(f, maxResult)).Decode(&read); err != nil {
		return nil, fmt.Errorf("read the result of a run from %s: %w", path, err)
	}
	result := &read.Result
	if read.Answer != nil {
		result = read.Answer
	}
	if result.Receipt.Policy == "" {
		return nil, fmt.Errorf("%s holds no result of a run", path)
	}
	return result, nil
}

// A want is a host that was refused for the sake of its name.
type want struct {
	patch.Host
	reasons []firewall.Reason
}

// warnings are what the reasons of its refusals say against it.
func (w want) warnings() (against []string) {
	if slices.Contains(w.reasons, firewall.ReasonDoH) {
		against = append(against, "a public DNS-over-HTTPS resolver")
	}
	if slices.Contains(w.reasons, firewall.ReasonRemoved) {
		against = append(against, "the policy removes it on purpose")
	}
	return against
}

// wants are the refused hosts of a receipt that an entry could allow, and those of
// the floor. A refusal for another reason is nothing that an entry changes.
func wants(r account.Receipt) []want {
	var all []want
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
			w := want{patch.Host{Name: name}, []firewall.Reason{h.Reason}}
			if h.Port != 0 { // a look-up has none
				w.Ports = []uint16{h.Port}
			}
			all = merge(all, []want{w})
		}
	}
	return all
}

// beyond says of what else was refused why no host is added for it.
func beyond(r account.Receipt) []string {
	var notes []string
	for _, h := range r.Hosts {
		switch h.Reason {
		case firewall.ReasonBadName:
			notes = append(notes, oneLine(h.Host, 80)+": it is no host name, and an entry names hosts only, never addresses")
		case firewall.ReasonAddress:
			notes = append(notes, oneLine(h.Host, 80)+": its address was refused; for a host of your own, give its entry the private range by hand")
		}
	}
	return notes
}

// merge adds more to all, each name once.
func merge(all, more []want) []want {
	for _, w := range more {
		i := slices.IndexFunc(all, func(have want) bool { return have.Name == w.Name })
		if i < 0 {
			all = append(all, w)
			continue
		}
		all[i].reasons = append(all[i].reasons, w.reasons...)
		all[i].Ports = append(all[i].Ports, w.Ports...)
		slices.Sort(all[i].Ports)
		all[i].Ports = slices.Compact(all[i].Ports)
	}
	slices.SortFunc(all, func(a, b want) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	return all
}
