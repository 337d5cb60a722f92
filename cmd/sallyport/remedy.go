package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist/patch"
)

// maxRemedies bounds the hosts that a result lists as YAML.
const maxRemedies = 20

// printRemedy prints what to put into the allowlist where the operator wants what
// was refused, with what speaks against it.
func printRemedy(w io.Writer, r account.Receipt) error {
	var lines, notes []string
	for _, wanted := range wants(r) {
		if _, never := patch.Never(wanted.Name); never {
			continue
		}
		if slices.Contains(wanted.reasons, firewall.ReasonPortNotAllowed) && len(wanted.Ports) > 0 {
			// Its entry may have ranges or a proxy, which a second entry would not have.
			notes = append(notes, fmt.Sprintf("To allow %s on port %s, add the port to the entry that has it: sallyport explain %s:%d -p %s\n",
				wanted.Name, list(wanted.Ports), wanted.Name, wanted.Ports[0], safe(r.Policy)))
			continue
		}
		line := "      - " + patch.Entry(wanted.Host)
		if risks := append(patch.Risks(wanted.Name), wanted.warnings()...); len(risks) > 0 {
			line += " # RISK: " + strings.Join(risks, "; ")
		}
		lines = append(lines, line)
	}
	if n := len(notes); n > maxRemedies {
		notes = append(notes[:maxRemedies], fmt.Sprintf("and so for %d more\n", n-maxRemedies))
	}
	if len(notes) > 0 {
		if _, err := fmt.Fprintf(w, "\n%s", strings.Join(notes, "")); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if n := len(lines); n > maxRemedies {
		lines = append(lines[:maxRemedies], fmt.Sprintf("      # and %d more", n-maxRemedies))
	}
	_, err := fmt.Fprintf(w, "\nTo allow what was refused (sallyport learn makes a patch of it):\npolicies:\n  %s:\n    allow:\n%s\n", safe(r.Policy), strings.Join(lines, "\n"))
	return err
}
