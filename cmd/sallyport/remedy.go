package main

import (
	"fmt"
	"io"
	"strings"

	"sallyport/firewall"
	"sallyport/firewall/patch"
)

// maxRemedies bounds the hosts that a result lists as YAML.
const maxRemedies = 20

// printRemedy prints what to put into the allowlist where the operator wants what
// was refused, with what speaks against it.
func printRemedy(w io.Writer, r firewall.Receipt) error {
	var lines []string
	for _, wanted := range wants(r) {
		if _, never := patch.Never(wanted.Name); never {
			continue
		}
		line := "      - " + patch.Entry(wanted.Host)
		if risks := append(patch.Risks(wanted.Name), wanted.warnings()...); len(risks) > 0 {
			line += " # RISK: " + strings.Join(risks, "; ")
		}
		lines = append(lines, line)
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
