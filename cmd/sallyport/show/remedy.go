package show

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"sallyport/cmd/sallyport/terminal"
	"sallyport/firewall"
	"sallyport/firewall/account"
	"sallyport/firewall/allowlist/patch"
	"sallyport/firewall/review"
)

// maxRemedies bounds the hosts that a result lists as YAML.
const maxRemedies = 20

// printRemedy prints what to put into the allowlist where the operator wants what
// was refused, with what speaks against it.
func printRemedy(w io.Writer, r account.Receipt) error {
	var lines, notes []string
	for _, wanted := range review.WantedOf(r) {
		if _, never := review.Never(wanted.Name); never {
			continue
		}
		if slices.Contains(wanted.Reasons, firewall.ReasonPortNotAllowed) && len(wanted.Ports) > 0 {
			// Its entry may have ranges or a proxy, which a second entry would not have.
			notes = append(notes, fmt.Sprintf("To allow %s on port %s, add the port to the entry that has it: sallyport explain %s:%d -p %s\n",
				wanted.Name, terminal.List(wanted.Ports), wanted.Name, wanted.Ports[0], terminal.Safe(r.Policy)))
			continue
		}
		line := "      - " + patch.Entry(patch.Host{Name: wanted.Name, Ports: wanted.Ports})
		if risks := append(review.Risks(wanted.Name), wanted.Risks()...); len(risks) > 0 {
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
	_, err := fmt.Fprintf(w, "\nTo allow what was refused (sallyport learn makes a patch of it):\npolicies:\n  %s:\n    allow:\n%s\n", terminal.Safe(r.Policy), strings.Join(lines, "\n"))
	return err
}
