package sniproxy

import (
	"errors"
	"net/http"

	"sallyport/firewall"
	"sallyport/internal/contain"
)

// fault is the refusal of what has panicked, or nil if err is no panic. Whoever
// records it logs it.
func fault(err error) *refusal {
	var p *contain.Panic
	if !errors.As(err, &p) {
		return nil
	}
	return &refusal{reason: firewall.ReasonFault, detail: p.Error(), alert: alertInternalError, status: http.StatusBadGateway, fault: p}
}
