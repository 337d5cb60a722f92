package probes

// Catalogue holds all groups, in the order of the document.
var Catalogue = []Group{
	topology, names, tunnels, requests, addresses, policies, lifecycle, others,
	credentials, containers, artifacts,
}

// residuals is the heading of docs/threat-model.md for what stays possible.
const residuals = "Residuals: what stays possible"
