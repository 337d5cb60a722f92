package probes

// Catalogue holds all groups, in the order of the document.
var Catalogue = []Group{
	topology, names, tunnels, requests, addresses, policies, ceilings, taskSecrets, lifecycle, others,
	credentials, containers, artifacts,
}

// Residuals is the heading of docs/threat-model.md for what stays possible.
const Residuals = "Residuals: what stays possible"
